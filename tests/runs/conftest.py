"""Runs that several files of tests begin with."""

import functools
import shutil

import pytest
from support import interrupted


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
  """What a run leaves that was never interrupted."""

  @functools.cache
  def get(changes=()):
    workdir = tmp_path_factory.mktemp("whole")
    interrupted.run(workdir, interrupted.NEVER, **dict(changes))
    return interrupted.files(workdir)

  return lambda **changes: get(tuple(sorted(changes.items())))


@pytest.fixture(scope="session")
def halfway(tmp_path_factory):
  """A run that was stopped in phase 2, with two checkpoints of that phase."""
  workdir = tmp_path_factory.mktemp("halfway") / "out"
  checkpoints = workdir / "seed_0" / "checkpoints"
  parts = lambda: len(list(checkpoints.glob("phase_02_part_*"))) == 2
  assert not interrupted.run_until(workdir, parts)
  return workdir


@pytest.fixture
def workdir(halfway, tmp_path):
  """A copy of it."""
  return shutil.copytree(halfway, tmp_path / "out")
