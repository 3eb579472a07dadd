"""`experiments.imagenet`: which of the two is learned."""

import pytest
from support import command

from experiments import datasets


@pytest.fixture
def learned(monkeypatch):
  found = []
  monkeypatch.setattr(datasets, "learn", found.append)
  return found


@pytest.mark.parametrize(
  "flag, name", [("--subset", "imagenet_subset"), ("--full", "imagenet")]
)
def test_a_flag_chooses(tmp_path, learned, flag, name):
  assert not command.call("imagenet", flag, cwd=tmp_path).code
  assert learned == [name]


@pytest.mark.parametrize(
  "flags, said",
  [([], "add --subset"), (["--subset", "--full"], "leave out one")],
)
def test_one_of_them_has_to_be_chosen(tmp_path, learned, flags, said):
  done = command.call("imagenet", *flags, cwd=tmp_path)
  command.assert_refused(done, said)
  assert not learned
