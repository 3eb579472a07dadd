"""One seed: what it writes after every phase, and where it goes on."""

import dataclasses
import json

import pytest
from support import interrupted, learners, tiny

from mnemonics_jax import methods, phase
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.progress import PhaseEnds, StepReport, ignore
from mnemonics_jax.runs import Diverged
from mnemonics_jax.runs.journal import Saver
from mnemonics_jax.runs.metrics_log import MetricsLog, read_metrics
from mnemonics_jax.runs.seed_run import run_seed
from mnemonics_jax.runs.signals import Stop

TWICE = dataclasses.replace(tiny.SCHEDULE, epochs=2, milestones=())


def setup():
  """A layer that learns two classes, then one, in no time."""
  config, stream = tiny.setup(
    methods.LwF(), split=(2, 1), base=TWICE, train=TWICE
  )
  network = Network(learners.Flat(), stream.image_shape)
  return dataclasses.replace(config, network=network), stream


def run(path, config, stream, report=ignore):
  with MetricsLog(path, tensorboard=False) as log:
    saver = Saver(5, path, interrupted.ALWAYS, log, Stop(), report)
    return run_seed(config, stream, saver, report)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
  path, heard = tmp_path_factory.mktemp("seed"), []
  return path, run(path, *setup(), report=heard.append), heard


def test_its_record_has_every_phase(finished):
  _, record, _ = finished
  assert record["seed"] == 5
  assert [p["classes_seen"] for p in record["phases"]] == [2, 3]
  assert json.loads(json.dumps(record)) == record


def test_epochs_and_phases_are_logged_as_they_end(finished):
  path, record, _ = finished
  lines = read_metrics(path)
  assert [(line["kind"], line["phase"], line.get("epoch")) for line in lines] == [
    ("epoch", 0, 0), ("epoch", 0, 1), ("phase", 0, None),
    ("epoch", 1, 0), ("epoch", 1, 1), ("phase", 1, None),
  ]  # fmt: skip
  assert {line["seed"] for line in lines} == {5}
  ends = [line for line in lines if line["kind"] == "phase"]
  assert [end["accuracy"] for end in ends] == [
    p["accuracy"] for p in record["phases"]
  ]
  assert all(end["seconds"]["train"] > 0 for end in ends)


def test_arrays_are_there_after_each(finished):
  path, _, _ = finished
  names = {file.name for file in (path / "seed_5").glob("*.npz")}
  assert names == {"phase_00.npz", "phase_01.npz"}


def test_whoever_listens_hears_the_end_of_a_phase_after_its_steps(finished):
  _, record, heard = finished
  ends = [event for event in heard if isinstance(event, PhaseEnds)]
  assert [(e.phase, e.classes_seen, e.accuracy) for e in ends] == [
    (p["phase"], p["classes_seen"], p["accuracy"]) for p in record["phases"]
  ]
  steps = [event.phase for event in heard if isinstance(event, StepReport)]
  assert steps == sorted(steps) and set(steps) == {0, 1}


def test_what_has_been_learned_is_not_learned_again(finished, monkeypatch):
  path, record, _ = finished
  monkeypatch.setattr(
    phase, "run_phase", lambda *_, **__: pytest.fail("learned again")
  )
  assert run(path, *setup()) == record


def test_divergence_names_the_stage_and_what_is_safe(tmp_path):
  config, stream = setup()
  wild = dataclasses.replace(TWICE, learning_rate=1e30)
  config = dataclasses.replace(config, base=wild)
  with pytest.raises(Diverged, match="seed 5, phase 0, stage train") as error:
    run(tmp_path, config, stream)
  assert (error.value.stage, error.value.field) == ("train", "train")
  assert str(error.value).endswith(
    "phase_00_part_000; lower the learning rate of that stage."
  )
