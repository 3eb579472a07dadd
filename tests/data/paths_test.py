"""Paths come back as they went in, whatever their names are made of."""

from pathlib import Path

import pytest

from mnemonics_jax.data.paths import Paths

NAMES = ["cat/1.png", "cat/größe.jpg", "dog/a b.png", "dog/a\nb.png"]


@pytest.fixture
def paths():
  found = Paths(Path("/pets"))
  found.extend(Path("/pets") / name for name in NAMES[:3])
  found.extend([Path("/pets") / NAMES[3]])
  return found


def test_they_come_back_in_order(paths):
  assert [str(path) for path in paths] == [f"/pets/{name}" for name in NAMES]
  assert len(paths) == 4 and paths[-1] == Path("/pets/dog/a\nb.png")


def test_a_part_is_a_list_of_paths(paths):
  assert list(paths[1:3]) == [Path("/pets") / name for name in NAMES[1:3]]
  with pytest.raises(IndexError):
    paths[4]
