"""A run is a call: what it returns, tells, refuses and does not do again."""

import dataclasses
import itertools
import json
import re
from unittest import mock

import jax
import numpy as np
import pytest
from support import interrupted, tiny

from mnemonics_jax import data, methods, runs
from mnemonics_jax.data.images import Resident, Stored
from mnemonics_jax.errors import UserError
from mnemonics_jax.methods import bic
from mnemonics_jax.parallel import mesh
from mnemonics_jax.progress import PhaseEnds, RunBegins, SeedBegins, StepReport
from mnemonics_jax.runs import artifact

QUICK = dataclasses.replace(tiny.SCHEDULE, epochs=1, milestones=())


@pytest.fixture(scope="module")
def quick():
  return tiny.setup(methods.LwF(), split=(2, 1), base=QUICK, train=QUICK)


@pytest.fixture(scope="module")
def finished(quick, tmp_path_factory):
  """A run over two seeds: where it is, what it returned and what it told."""
  workdir, events = tmp_path_factory.mktemp("finished"), []
  results = runs.run(*quick, workdir, seeds=(3, 1), report=events.append)
  return workdir, results, events


def test_it_returns_what_it_writes(finished):
  workdir, results, _ = finished
  assert runs.load_run(workdir).results == json.loads(json.dumps(results))
  assert results["seeds"] == [3, 1]
  assert [run["seed"] for run in results["runs"]] == [3, 1]
  assert results["classes_per_phase"] == [2, 1]
  assert results["title"] == "tiny · lwf · herding · per_class:3"
  assert results["schedule"] == "reduced" and results["preset"] == "custom"


def test_it_tells_where_it_is(finished):
  _, _, events = finished
  begins, *others = events
  assert isinstance(begins, RunBegins)
  assert (begins.phases, begins.seeds, len(begins.work)) == (2, (3, 1), 2)
  seeds = [event.seed for event in others if isinstance(event, SeedBegins)]
  assert seeds == [3, 1]
  ended = [
    (event.phase, event.stage, event.epoch)
    for event in others
    if isinstance(event, StepReport) and event.metrics
  ]
  assert ended == [(0, "train", 0), (1, "train", 0)] * 2


def test_the_end_of_a_phase_is_heard_after_its_steps(finished):
  _, results, events = finished
  heard = [e for e in events if isinstance(e, StepReport | PhaseEnds)]
  assert [e.phase for e in heard] == sorted(
    [e.phase for e in heard[: len(heard) // 2]]
  ) * 2
  last = [a for a, b in itertools.pairwise(heard) if a.phase != b.phase]
  assert [type(event) for event in (*last, heard[-1])] == [PhaseEnds] * 4
  ends = [event for event in heard if isinstance(event, PhaseEnds)]
  assert [(e.phase, e.classes_seen, e.accuracy) for e in ends] == [
    (phase["phase"], phase["classes_seen"], phase["accuracy"])
    for run in results["runs"]
    for phase in run["phases"]
  ]


def test_every_epoch_and_phase_is_in_the_log(finished):
  workdir, results, _ = finished
  lines = runs.read_metrics(workdir)
  key = lambda line: (line["kind"], line["seed"], line["phase"])
  assert [(*key(line), line.get("epoch")) for line in lines] == [
    (kind, seed, phase, 0 if kind == "epoch" else None)
    for seed in (3, 1)
    for phase in (0, 1)
    for kind in ("epoch", "phase")
  ]
  ends = [line for line in lines if line["kind"] == "phase"]
  assert [end["accuracy"] for end in ends] == [
    phase["accuracy"] for run in results["runs"] for phase in run["phases"]
  ]
  assert all(end["seconds"]["train"] > 0 for end in ends)
  for seed in (3, 1):
    arrays = {path.name for path in (workdir / f"seed_{seed}").glob("*.npz")}
    assert arrays == {"phase_00.npz", "phase_01.npz"}


def test_the_same_call_again_trains_nothing(quick, finished, monkeypatch):
  workdir, results, _ = finished
  monkeypatch.setattr(
    "mnemonics_jax.phase.run_phase", lambda *_, **__: pytest.fail("trained")
  )
  log = (workdir / "metrics.jsonl").read_bytes()
  events = []
  again = runs.run(*quick, workdir, seeds=(3, 1), report=events.append)
  assert again == json.loads(json.dumps(results))
  assert [type(event) for event in events] == [RunBegins]
  assert events[0].seeds == ()
  assert (workdir / "metrics.jsonl").read_bytes() == log


def test_the_names_of_settings_are_the_callers(quick, tmp_path, monkeypatch):
  """A directory then belongs to those, and the results have its words."""

  class Trained(Exception):
    pass

  def train(*_):
    raise Trained

  monkeypatch.setattr("mnemonics_jax.phase.begin_run", train)
  with pytest.raises(Trained):
    runs.run(*quick, tmp_path, settings={"speed": "slow"})
  with pytest.raises(UserError, match=r"speed \(slow there, fast now\)"):
    runs.run(*quick, tmp_path, settings={"speed": "fast"})


def test_labels_are_in_the_results(quick, finished, monkeypatch):
  workdir, _, _ = finished
  labels = runs.Labels("my title", "my preset", "reduced", ("epochs 2",))
  results = runs.run(*quick, workdir, seeds=(3, 1), labels=labels)
  found = results["title"], results["preset"], results["schedule"]
  assert found == labels[:3]
  assert results["departures"] == ["epochs 2"]


def test_a_configuration_of_another_stream_is_refused(quick, tmp_path):
  config, _ = quick
  _, other = tiny.setup(methods.LwF(), split=(1, 2))
  with pytest.raises(ValueError, match="another shape"):
    runs.run(config, other, tmp_path / "out")
  assert not (tmp_path / "out").exists()


def test_a_batch_that_devices_cannot_share_is_refused(
  quick, tmp_path, monkeypatch
):
  monkeypatch.setattr(mesh, "device_count", lambda: 3)
  with pytest.raises(UserError, match=r"`batch_size=16` .* by 3 devices"):
    runs.run(*quick, tmp_path / "out")
  assert not (tmp_path / "out").exists()


def test_a_pool_of_images_that_vary_is_refused(quick, tmp_path):
  config, _ = quick
  dataset = tiny.dataset(3)
  images = Stored(
    Resident(dataset.train_images, varies=True),
    np.arange(len(dataset.train_images)),
  )
  _, varied = tiny.setup(
    methods.LwF(),
    split=config.shape.classes_per_phase,
    data=dataclasses.replace(dataset, train_images=images),
  )
  config = dataclasses.replace(config, stream="never")
  with pytest.raises(UserError, match="`stream=never` would show"):
    runs.run(config, varied, tmp_path / "out")
  assert not (tmp_path / "out").exists()


# Numbers that are none.

WILD = dict(learning_rate=1e30)
RESTLESS = dataclasses.replace(tiny.RECIPE, inner_lr=3e38)


@pytest.mark.parametrize(
  "stage, phase, changes",
  [
    ("train", 0, dict(base=dataclasses.replace(interrupted.SCHEDULE, **WILD))),
    (
      "finetune",
      0,
      dict(balance=dataclasses.replace(interrupted.SCHEDULE, **WILD)),
    ),
    ("exemplars", 0, dict(bilevel=RESTLESS)),
    ("adjust", 1, dict(bilevel=RESTLESS, exemplars="herding")),
    pytest.param("train", 1, dict(method="bic"), marks=pytest.mark.slow),
  ],
  ids=["train", "finetune", "exemplars", "adjust", "bic"],
)
def test_divergence_stops_the_run_before_it_is_saved(
  tmp_path, monkeypatch, stage, phase, changes
):
  monkeypatch.setattr(bic, "fit_bias", lambda *_, **__: (float("nan"), 0.0))
  with pytest.raises(runs.Diverged) as raised:
    interrupted.run(tmp_path, **changes)
  message = str(raised.value)
  assert message.startswith(f"seed 0, phase {phase}, stage {stage}: ")
  assert raised.value.stage == stage
  assert "diverged" in message and "learning rate" in message
  field = {"finetune": "balance", "train": "train"}.get(stage, "bilevel")
  assert raised.value.field == field
  assert re.search(r"The last good checkpoint is .*phase_0\d", message)
  assert message.endswith("; lower the learning rate of that stage.")
  for path in interrupted.checkpoints(tmp_path):
    tree, _ = artifact.restore(path)
    for content in jax.tree.leaves(tree):
      assert np.isfinite(content).all(), path.name


def test_another_order_of_classes_is_another_run(tmp_path, monkeypatch):
  """Even though sizes and images are the same."""
  train = mock.Mock(side_effect=InterruptedError)
  monkeypatch.setattr("mnemonics_jax.phase.run_phase", train)
  config, stream = tiny.setup(methods.LwF())
  with pytest.raises(InterruptedError):
    runs.run(config, stream, tmp_path / "out")
  other = data.ClassStream(tiny.dataset(6), range(5, -1, -1), (3, 1, 2))
  assert (other.shape, other.checksum) == (stream.shape, stream.checksum)
  with pytest.raises(UserError, match="class_names"):
    runs.run(config, other, tmp_path / "out")


@pytest.mark.parametrize("seeds", [(), (0, 0), (-1,), (1.5,), "0", (2**32,)])
def test_seeds_are_whole_and_named_once(unchecked, tmp_path, seeds):
  config, stream = tiny.setup(methods.LwF())
  with pytest.raises(UserError, match="seeds"):
    runs.run(config, stream, tmp_path / "out", seeds=seeds)
  assert not (tmp_path / "out").exists()
