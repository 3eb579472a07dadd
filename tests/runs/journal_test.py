"""Which checkpoints are kept, and what a journal gives back."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import interrupted

from mnemonics_jax import memory
from mnemonics_jax.errors import UserError
from mnemonics_jax.progress import Note, StepReport, ignore
from mnemonics_jax.runs import Policy, Stopped, artifact, journal
from mnemonics_jax.runs.journal import Clock, Saver
from mnemonics_jax.runs.metrics_log import MetricsLog
from mnemonics_jax.runs.signals import Stop
from mnemonics_jax.types import PhaseState


@pytest.fixture
def log(tmp_path):
  with MetricsLog(tmp_path, tensorboard=False) as log:
    yield log


@pytest.fixture
def make(tmp_path, log):
  """Savers that begin where the one before has saved."""

  def make(policy=interrupted.ALWAYS, stop=None, report=ignore):
    saver = Saver(0, tmp_path, policy, log, stop or Stop(), report)
    state, _ = saver.restore(begin())
    return saver, state

  return make


def begin(phase: int = 0) -> PhaseState:
  kept = memory.empty(2, (2, 2, 3))
  kept = memory.insert(kept, 0, np.full((1, 2, 2, 3), 9, np.uint8))
  variables = {"params": {"w": jnp.arange(3.0)}}
  return PhaseState(variables, kept, jax.random.key(7), phase, 2 * phase)


def names(saver) -> list[str]:
  return sorted(path.name for path in saver.directory.iterdir())


def test_a_large_memory_is_on_the_disk_after_a_phase(make, monkeypatch):
  saver, _ = make()
  before = begin(phase=1)
  after = saver.end_phase(before, [])
  assert after.memory == before.memory
  assert _mapped(after.memory.images) is None
  monkeypatch.setattr(artifact, "_LARGE", 12)
  saver.end_phase(begin(phase=2), [])
  after = saver.end_phase(before._replace(phase=3), [])
  assert after.memory == before.memory and after.phase == 3
  file = saver.directory / "phase_02" / "large" / "memory.images.npy"
  assert _mapped(after.memory.images) == str(file)


def _mapped(array):
  """The file that an array is a part of."""
  while array is not None and not isinstance(array, np.memmap):
    array = array.base
  return None if array is None else str(array.filename)


def test_what_was_offered_comes_back_in_its_structure(make):
  saver, _ = make()
  offered = {"key": jax.random.key(3), "x": jnp.arange(2), "n": 5, "r": 0.5}
  saver.offer("train", offered)
  again, _ = make()
  assert again.started("train") and not again.started("finetune")
  like = jax.tree.map(lambda leaf: leaf, offered | {"n": 0, "r": 0.0})
  found = again.resume("train", like)
  assert (found["n"], found["r"]) == (5, 0.5)
  assert type(found["n"]) is int and isinstance(found["x"], jax.Array)
  assert jax.random.key_data(found["key"]).tolist() == [0, 3]
  assert again.resume("finetune", like) is None


def test_what_was_computed_once_is_not_computed_again(make):
  saver, _ = make()
  saver.once("train", lambda: {"w": np.arange(3)})
  again, _ = make()
  found = again.once("train", lambda: pytest.fail("computed again"))
  np.testing.assert_array_equal(found["w"], np.arange(3))


def test_a_state_between_phases_comes_back_with_its_records(make):
  saver, _ = make()
  after = begin(phase=1)
  saver.end_phase(after, [{"phase": 0}])
  saver, state = make()
  assert (state.phase, state.classes_seen) == (1, 2)
  np.testing.assert_array_equal(state.memory.images, after.memory.images)
  np.testing.assert_array_equal(state.memory.counts, [1, 0])
  np.testing.assert_array_equal(state.variables["params"]["w"], np.arange(3.0))
  assert (
    jax.random.key_data(state.key) == jax.random.key_data(after.key)
  ).all()
  assert saver.restore(begin())[1] == [{"phase": 0}]


def test_a_part_is_saved_when_it_is_due(make, monkeypatch):
  now = [100.0]
  monkeypatch.setattr("time.monotonic", lambda: now[0])
  saver, _ = make(Policy(every=10.0))
  saver.offer("train", {"x": 0})
  now[0] += 9.9
  saver.offer("train", {"x": 1})
  assert names(saver) == []
  now[0] += 0.1
  saver.offer("train", {"x": 2})
  assert names(saver) == ["phase_00_part_000"]
  saver.offer("train", {"x": 3})
  assert make()[0].resume("train", {"x": 0}) == {"x": 2}


def test_the_two_newest_parts_of_the_running_phase_are_kept(make):
  saver, _ = make()
  for number in range(4):
    saver.offer("train", {"x": number})
  assert names(saver) == ["phase_00_part_002", "phase_00_part_003"]
  saver.end_phase(begin(phase=1), [])
  assert names(saver) == ["phase_00"]
  saver.offer("train", {"x": 0})
  assert names(saver) == ["phase_00", "phase_01_part_000"]


def test_as_many_phases_are_kept_as_asked_for(make):
  saver, _ = make(Policy(keep=2))
  for phase in range(1, 5):
    saver.end_phase(begin(phase), [])
  assert names(saver) == ["phase_02", "phase_03"]


def test_a_run_keeps_parts_and_phases_by_its_policy(workdir):
  saved = [path.name for path in interrupted.checkpoints(workdir)]
  assert saved[:2] == ["phase_00", "phase_01"]
  assert all(name.startswith("phase_02_part_") for name in saved[2:])
  assert len(saved) == 4
  interrupted.run(workdir, Policy(0.0, keep=2))
  saved = [path.name for path in interrupted.checkpoints(workdir)]
  assert saved == ["phase_01", "phase_02"]


def test_records_of_phases_are_in_the_checkpoint(halfway, whole):
  results = json.loads(whole()["results"])
  _, info = artifact.restore(halfway / "seed_0" / "checkpoints" / "phase_01")
  assert info["records"] == results["runs"][0]["phases"][:2]


def test_the_log_goes_back_to_where_the_checkpoint_was_made(make, log):
  saver, _ = make()
  line = lambda epoch: log.write({"kind": "epoch", "seed": 0, "epoch": epoch})
  line(0)
  saver.offer("train", {"x": 0})
  size = log.sync()
  line(1)
  assert log.sync() > size
  make()
  assert log.sync() == size


def test_durations_continue(make, monkeypatch):
  now = [0.0]
  monkeypatch.setattr("time.monotonic", lambda: now[0])
  saver, _ = make()
  saver.clock(StepReport(0, "train", 0, 1, 0, 1))
  now[0] = 5.0
  saver.offer("train", {"x": 0})
  now[0] = 1000.0  # Nobody computes.
  saver, _ = make()
  saver.clock(StepReport(0, "train", 0, 1, 0, 1))
  now[0] = 1002.0
  assert saver.clock.read() == {"train": 7.0}


def test_somebody_who_asks_to_stop_gets_a_checkpoint_first(make):
  stop = Stop()
  saver, _ = make(interrupted.NEVER, stop)
  saver.offer("train", {"x": 0})
  assert names(saver) == []
  stop.asked = 15
  with pytest.raises(Stopped) as stopped:
    saver.offer("train", {"x": 1})
  assert stopped.value.code == 143
  assert names(saver) == ["phase_00_part_000"]


def test_it_tells_where_it_continues(make):
  told = []
  saver, _ = make()
  saver.end_phase(begin(phase=1), [{"phase": 0}])
  make(report=lambda note: told.append(note.text))
  saver, _ = make()
  saver.once("train", lambda: {"w": np.zeros(1)})
  make(report=lambda note: told.append(note.text))
  saver.offer("exemplars_0", {"x": 0})
  make(report=lambda note: told.append(note.text))
  saver.once("exemplars", lambda: {"w": np.zeros(1)})  # Before train, by name.
  make(report=lambda note: told.append(note.text))
  assert told == [
    "Continuing seed 0 in phase 1.",
    "Continuing seed 0 in phase 1, after stage train.",
    "Continuing seed 0 in phase 1, stage exemplars_0.",
    "Continuing seed 0 in phase 1, after stage exemplars.",
  ]


def test_missing_metrics_are_told(make, log, tmp_path):
  told = []
  saver, _ = make()
  log.write({"kind": "epoch", "seed": 0, "epoch": 0})
  saver.offer("train", {"x": 0})
  size = log.sync()
  make(report=lambda note: told.append(note.text))
  assert not any("are gone" in text for text in told)
  (tmp_path / "metrics.jsonl").write_text("")
  make(report=lambda note: told.append(note.text))
  lost = f"{size} bytes of {tmp_path / 'metrics.jsonl'} are gone"
  assert any(text.startswith(lost) for text in told)


@pytest.mark.parametrize(
  "wrong",
  [
    dict(every=-1.0),
    dict(every=float("nan")),
    dict(keep=0),
    dict(patience=-1.0),
    dict(patience=float("inf")),
  ],
)
def test_a_policy_that_could_not_save_is_refused(wrong):
  (name,) = wrong
  with pytest.raises(UserError, match=f"`{name}="):
    Policy(**wrong)


def test_seconds_are_counted_by_stage(monkeypatch):
  now = [0.0]
  monkeypatch.setattr("time.monotonic", lambda: now[0])

  def reach(stage, seconds):
    now[0] = seconds
    clock(StepReport(0, stage, 0, 1, 0, 1))

  clock = Clock()
  assert clock.read() == {} and clock.stage is None
  reach("train", 1.0)  # Nobody knows what was before.
  reach("train", 3.0)
  reach("evaluate", 4.0)
  reach("finetune", 4.5)
  clock(Note("not a place"))
  reach("evaluate", 10.5)
  now[0] = 11.0
  assert clock.read() == {"train": 3.0, "evaluate": 1.0, "finetune": 6.0}
  assert clock.stage == "evaluate"


def test_counts_go_on_from_those_of_an_interrupted_phase(monkeypatch):
  now = [50.0]
  monkeypatch.setattr("time.monotonic", lambda: now[0])
  clock = Clock()
  stored = {"train": 3.0}
  clock.restart(stored)
  clock(StepReport(0, "train", 0, 1, 0, 1))
  now[0] = 52.0
  assert clock.read() == {"train": 5.0}
  assert stored == {"train": 3.0}


@pytest.mark.parametrize(
  ("codec", "arrays"),
  [
    (memory.Raw(), {"images", "counts"}),  # As all versions have written it.
    (memory.Jpeg(50), {"codes", "sizes", "counts"}),
  ],
)
def test_a_state_comes_back(codec, arrays):
  rng = np.random.default_rng(0)
  images = rng.integers(1, 256, (3, 4, 4, 3), np.uint8)
  blank = memory.empty(3, (4, 4, 3), codec)
  kept = memory.store(blank, images, np.array([0, 0, 1]))
  variables = {"params": {"w": jnp.asarray([0.1, 0.2])}}
  state = PhaseState(variables, kept, jax.random.key(5), 1, 2)
  tree = journal.pack_state(state)
  assert set(tree["memory"]) == arrays
  found = journal.unpack_state(blank, tree, {"phase": 1, "classes_seen": 2})
  np.testing.assert_array_equal(found.memory.images, kept.images)
  np.testing.assert_array_equal(found.memory.codes.data, kept.codes.data)
  np.testing.assert_array_equal(found.memory.counts, [2, 1, 0])
  assert (found.phase, found.classes_seen) == (1, 2)
  w = found.variables["params"]["w"]
  assert isinstance(w, jax.Array) and w.tolist() == [
    np.float32(0.1),
    np.float32(0.2),
  ]
  assert jax.random.key_data(found.key).tolist() == [0, 5]


def test_leaves_come_back_as_what_they_were():
  leaves = [jax.random.key(9), jnp.arange(2.0), np.arange(3), 4, 0.25]
  stored = journal.to_host(leaves)
  assert all(type(leaf) is np.ndarray for leaf in stored)
  like = [jax.random.key(0), jnp.zeros(2), np.zeros(3, int), 0, 0.0]
  pairs = zip(stored, like, strict=True)
  found = [journal.like_leaf(*pair) for pair in pairs]
  assert jax.random.key_data(found[0]).tolist() == [0, 9]
  assert isinstance(found[1], jax.Array) and found[1].tolist() == [0, 1]
  assert isinstance(found[2], np.ndarray) and found[2].tolist() == [0, 1, 2]
  assert found[3:] == [4, 0.25]
  assert [type(leaf) for leaf in found[3:]] == [int, float]


@pytest.mark.parametrize(
  ("name", "number"),
  [
    ("phase_00", (0, None)),
    ("phase_12", (12, None)),
    ("phase_100", (100, None)),
    ("phase_03_part_000", (3, 0)),
    ("phase_03_part_1234", (3, 1234)),
  ],
)
def test_names_of_checkpoints_and_back(name, number):
  assert journal.checkpoint_name(*number) == name
  assert journal.parse_name(name) == number


@pytest.mark.parametrize(
  "name",
  ["damaged_phase_03", "phase_03.partial-1", "phase_3", "phase_03_part_7"],
)
def test_other_names_are_no_checkpoints(name):
  assert journal.parse_name(name) is None


def test_they_are_listed_in_the_order_of_the_run(tmp_path):
  names = ["phase_100", "phase_99", "phase_99_part_1000", "phase_99_part_999"]
  for name in [*names, "damaged_phase_03", "phase_03.partial-1"]:
    (tmp_path / "seed_1" / "checkpoints" / name).mkdir(parents=True)
  there = tmp_path / "seed_1" / "checkpoints"
  assert journal.phase_names(there) == ["phase_99", "phase_100"]
  parts = ["phase_99_part_999", "phase_99_part_1000"]
  assert journal.part_names(there) == parts
  assert journal.part_names(there, 99) == parts
  assert journal.part_names(there, 98) == []
  assert journal.saved_phases(tmp_path, 1) == [99, 100]
