"""Damaged checkpoints are found, told and set aside."""

import errno
import os
import shutil

import pytest
from support import damage, interrupted

from mnemonics_jax.errors import UserError
from mnemonics_jax.runs import Policy, artifact


@pytest.mark.parametrize(
  "kind, harm",
  [
    ("phase_02_part_*", damage.truncate),
    ("phase_02_part_*", damage.flip_a_bit),
    ("phase_02_part_*", damage.empty),
    ("phase_01", damage.flip_a_bit),
    ("phase_01", damage.empty),
  ],
)
def test_a_damaged_checkpoint_is_set_aside(workdir, whole, capsys, kind, harm):
  checkpoints = workdir / "seed_0" / "checkpoints"
  newest = max(checkpoints.glob(kind))
  harm(newest)
  capsys.readouterr()
  assert not interrupted.run_until(workdir, 1)
  output = capsys.readouterr().out
  assert f"{newest} is damaged (" in output
  assert f"It is now damaged_{newest.name}" in output
  assert (checkpoints / f"damaged_{newest.name}").exists()
  interrupted.assert_log_is_whole(workdir)
  if harm is damage.flip_a_bit:
    interrupted.run(workdir)
    assert interrupted.files(workdir) == whole()


def test_parts_that_rest_on_a_damaged_phase_are_dropped(workdir, whole):
  checkpoints = workdir / "seed_0" / "checkpoints"
  damage.flip_a_bit(checkpoints / "phase_01")
  # Phase 1 is done again without a checkpoint in its middle.
  after = lambda: (checkpoints / "phase_01").exists()
  assert not interrupted.run_until(workdir, after, saving=interrupted.NEVER)
  assert not list(checkpoints.glob("phase_02_part_*"))
  interrupted.run(workdir)
  assert interrupted.files(workdir) == whole()
  interrupted.assert_log_is_whole(workdir)


def test_what_a_run_falls_back_on_is_kept(workdir):
  checkpoints = workdir / "seed_0" / "checkpoints"
  damage.flip_a_bit(checkpoints / "phase_01")
  interrupted.run_until(workdir, 1, saving=Policy(0.0, keep=1))
  assert (checkpoints / "phase_00").exists()


def test_a_damaged_only_checkpoint_is_an_error(tmp_path):
  interrupted.run_until(tmp_path, 1)
  (only,) = interrupted.checkpoints(tmp_path)
  damage.flip_a_bit(only)
  before = sorted(tmp_path.rglob("*"))
  for _ in range(2):  # It stays one.
    with pytest.raises(UserError, match=r"part_000 is damaged.*restore it"):
      interrupted.run(tmp_path)
  assert sorted(tmp_path.rglob("*")) == before


def test_trouble_with_reading_is_no_damage(workdir, monkeypatch):
  before = sorted(workdir.rglob("*"))

  def fail(*_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))

  monkeypatch.setattr(artifact, "restore", fail)
  with pytest.raises(UserError, match=r"cannot be read now .* nothing was"):
    interrupted.run(workdir)
  assert sorted(workdir.rglob("*")) == before


def test_swapped_checkpoints_are_noticed(workdir):
  checkpoints = workdir / "seed_0" / "checkpoints"
  first, second = checkpoints / "phase_00", checkpoints / "phase_01"
  first.rename(checkpoints / "aside")
  second.rename(first)
  (checkpoints / "aside").rename(second)
  with pytest.raises(UserError, match=r"for phase 0, not 1.*; move it back"):
    interrupted.run(workdir)


def test_a_checkpoint_of_another_run_or_seed_is_noticed(workdir, tmp_path):
  other = tmp_path / "other"
  interrupted.run_until(other, 1, seeds=(1,))
  stray = interrupted.checkpoints(other, seed=1)[0]
  mine = workdir / "seed_0" / "checkpoints"
  shutil.rmtree(mine)
  shutil.copytree(stray, mine / stray.name)
  with pytest.raises(UserError, match=r"written for run [0-9a-f]{16}, not"):
    interrupted.run(workdir)
