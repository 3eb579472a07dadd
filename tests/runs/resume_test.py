"""Interrupted runs end as if nothing had happened."""

import dataclasses
import itertools
import os
import re
import signal
import threading

import pytest
from support import damage, interrupted, tiny

from mnemonics_jax.data import DataError
from mnemonics_jax.data.images import Resident
from mnemonics_jax.memory import Jpeg
from mnemonics_jax.phase import sgd
from mnemonics_jax.runs import Stopped, artifact

WHOLE_NETWORK = dataclasses.replace(tiny.RECIPE, scope="all")


@pytest.mark.parametrize(
  "changes",
  [
    pytest.param({}, id="lucir"),
    pytest.param(
      dict(method="icarl", exemplars="herding", adjust=False, seeds=(0, 1)),
      id="icarl", marks=pytest.mark.slow,
    ),
    pytest.param(
      dict(method="bic", transfer="in_out", bilevel=WHOLE_NETWORK),
      id="bic", marks=pytest.mark.slow,
    ),
    pytest.param(dict(method="e2e"), id="e2e", marks=pytest.mark.slow),
    pytest.param(
      dict(exemplar_chunk=1), id="chunks", marks=pytest.mark.slow
    ),
    pytest.param(
      dict(stream="always", store=Resident), id="streamed",
      marks=pytest.mark.slow,
    ),
    pytest.param(
      dict(rehearsal="balanced", method="bic", adjust=False, codec=Jpeg(90)),
      id="rehearsal", marks=pytest.mark.slow,
    ),
  ],
)  # fmt: skip
def test_stopping_again_and_again_changes_nothing(
  tmp_path, whole, capsys, changes
):
  starts = 1
  while not interrupted.run_until(tmp_path, 7, **changes):
    starts += 1
    interrupted.assert_log_is_whole(tmp_path)
    assert starts < 100
  assert starts > 3
  assert interrupted.files(tmp_path) == whole(**changes)
  interrupted.assert_log_is_whole(tmp_path)
  if not changes:
    output = capsys.readouterr().out
    assert re.search(
      r"Checkpoint after phase 1: [\d.]+ MB in [\d.]+ s\.", output
    )
    # Not only between stages, but within each of them.
    for stage in ("train", "exemplars", "adjust", "finetune"):
      assert re.search(
        rf"Continuing seed 0 in phase \d, stage {stage}\.", output
      )


STREAMED = dict(stream="always", store=Resident)


@pytest.mark.parametrize(
  "changes", [{}, STREAMED], ids=["resident", "streamed"]
)
def test_a_signal_saves_at_the_next_opportunity(
  tmp_path, whole, monkeypatch, changes
):
  """In the middle of an epoch; whether images stream changes nothing."""
  finite = sgd.finite

  def ask(variables):
    monkeypatch.setattr(sgd, "finite", finite)
    os.kill(os.getpid(), signal.SIGTERM)
    return finite(variables)

  monkeypatch.setattr(sgd, "finite", ask)
  with pytest.raises(Stopped) as stopped:
    interrupted.run(tmp_path, interrupted.NEVER, **changes)
  assert stopped.value.code == 143
  assert "Run it again to continue" in str(stopped.value)
  assert threading.active_count() == 1
  (part,) = interrupted.checkpoints(tmp_path)
  assert artifact.restore(part)[1]["stage"] == "train"
  interrupted.run(tmp_path, interrupted.NEVER, **changes)
  assert interrupted.files(tmp_path) == whole()


class _Damaged(Resident):
  """Fails at the fifth look of training."""

  looks = itertools.count(1)

  def read(self, rows, draws=None):
    if draws is not None and next(self.looks) == 5:
      raise DataError("data_dir", "`data_dir`: 7.jpg has changed", "restore it")
    return super().read(rows, draws)


def test_an_image_that_cannot_be_read_costs_no_more_than_a_stop(
  tmp_path, whole
):
  """Training looks twice at each phase's data: it ends in the third."""
  with pytest.raises(
    DataError, match=r"^`data_dir`: 7\.jpg has changed; restore"
  ):
    interrupted.run(
      tmp_path, interrupted.NEVER, stream="always", store=_Damaged
    )
  assert threading.active_count() == 1
  kept = [path.name for path in interrupted.checkpoints(tmp_path)]
  assert kept == ["phase_00", "phase_01"]
  interrupted.run(tmp_path, interrupted.NEVER)  # In memory, for a change.
  assert interrupted.files(tmp_path) == whole()


def test_drafts_of_a_killed_process_are_cleared(workdir):
  draft = workdir / "seed_0" / "checkpoints" / "phase_02_part_009.partial-1"
  draft.mkdir()
  (draft / "manifest.json").write_text("{")
  interrupted.run_until(workdir, 1)
  assert not draft.exists()


@pytest.mark.parametrize(
  "found, told",
  [
    ({"devices": 8}, "made on 8 devices; the phase begins again"),
    ({"format": 1}, "made by another version; the phase begins again"),
  ],
)
def test_a_part_that_does_not_fit_begins_the_phase_again(
  workdir, monkeypatch, capsys, found, told
):
  restore = artifact.restore

  def elsewhere(*args):
    tree, info = restore(*args)
    return tree, info | found

  monkeypatch.setattr(artifact, "restore", elsewhere)
  newest = interrupted.checkpoints(workdir)[-1]
  damage.flip_a_bit(newest)  # Damage on top does not matter.
  interrupted.run_until(workdir, 1)
  assert told in capsys.readouterr().out
  # The older parts rest on a log that is gone.
  names = [path.name for path in interrupted.checkpoints(workdir)]
  assert [n for n in names if n.startswith("phase_02")] == ["phase_02_part_000"]
  assert any(name.startswith("damaged_") for name in names)
  interrupted.assert_log_is_whole(workdir)
