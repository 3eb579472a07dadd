"""RUN on a command line."""

from pathlib import Path

from absl.testing import flagsaver
import pytest

from experiments import learned
import mnemonics_jax
from mnemonics_jax.errors import UserError


def test_the_first_argument_is_a_directory(tmp_path, monkeypatch):
  assert learned.argument(["x", str(tmp_path), "more"], "") == tmp_path
  monkeypatch.setenv("HOME", str(tmp_path))
  (tmp_path / "run").mkdir()
  assert learned.argument(["x", "~/run"], "") == tmp_path / "run"
  with pytest.raises(UserError, match="RUN is missing; write how to use it"):
    learned.argument(["x"], "how to use it")
  (tmp_path / "file").touch()
  for name in ("file", "nothing"):
    with pytest.raises(UserError, match=f"no directory .*{name}"):
      learned.argument(["x", str(tmp_path / name)], "")


def test_flags_choose_seed_and_phase(monkeypatch):
  asked = []
  monkeypatch.setattr(
    mnemonics_jax.Learner, "load", lambda path, **which: asked.append(which)
  )
  learned.load(Path("run"))
  with flagsaver.as_parsed(seed="3", phase="0"):
    learned.load(Path("run"))
  none = {"network": None, "seed": None, "phase": None}
  assert asked == [none, none | {"seed": 3, "phase": 0}]
