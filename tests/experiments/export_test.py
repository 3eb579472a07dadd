"""`experiments.export`: what was learned, for other programs."""

import numpy as np
import pytest
from support import command, finished_run
from support.command import Accepted, assert_refused

from mnemonics_jax import Learner


@pytest.fixture(scope="module")
def home(tmp_path_factory):
  home = tmp_path_factory.mktemp("home")
  finished_run.write(home / "run")
  return home


def export(home, *arguments):
  return command.call("export", *map(str, arguments), cwd=home)


def test_an_export_is_asked_and_learned_from_again(home):
  done = export(home, "run", "--to=out", "--seed=1", "--phase=0")
  assert not done.code, done.err
  expected = "3 classes after phase 0 of seed 1: 9 exemplars"
  assert expected in done.out and done.out.endswith("in out.\n")
  one, known = Learner.load(home / "run", seed=1, phase=0)
  other, again = Learner.load(home / "out")
  shown = finished_run.ALL.test_images
  assert np.array_equal(
    one.predict_proba(known, shown), other.predict_proba(again, shown)
  )
  done = command.call("predict", "out", "out/train", "--top=1", cwd=home)
  assert not done.code and "of 9)" in done.out
  with pytest.raises(Accepted):
    flags = "--base_classes=2", "--phases=1", "--memory=per_class:2"
    command.call("folder", "--data=out", *flags, cwd=home)


@pytest.mark.parametrize(
  ("arguments", "parts"),
  [
    ([], ["RUN is missing", "--to=DIR"]),
    (["run"], ["--to is missing"]),
    (["nowhere", "--to=x"], ["There is no directory nowhere"]),
    (["run", "run", "--to=x"], ["'run' is not a flag"]),
    (["run", "--to=run"], ["--to=", "exists and is not empty"]),
    (["run", "--to=run/config.json/x"], ["--to=", "not a directory"]),
    (["run", "--to=x", "--phase=7"], ["--phase=7", "0, 1"]),
    (["run", "--to="], ["--to is empty"]),
  ],
)
def test_mistakes(home, arguments, parts):
  assert_refused(export(home, *arguments), *parts)
