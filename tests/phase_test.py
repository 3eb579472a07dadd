"""Whole phases on a tiny data set, for every method."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny

from mnemonics_jax import (
  augment,
  bilevel,
  evaluate,
  exemplars,
  memory,
  methods,
  networks,
  phase,
  protocol,
  training,
)
from mnemonics_jax.evaluate import extract
from mnemonics_jax.keys import Keys
from mnemonics_jax.model import Model
from mnemonics_jax.stream import ClassStream

SCHEDULE = training.Schedule(
  epochs=8, learning_rate=0.05, milestones=(6,), batch_size=16
)


def _setup(method, *, split=(3, 1, 2), policy=protocol.PerClass(3), **options):
  data = tiny.dataset()
  stream = ClassStream(data, range(6), split, joint=method.joint)
  network = networks.resnet8(
    width=4, image_shape=(8, 8, 3), mean=data.mean, std=data.std
  )
  settings = dict(
    capacity=72,
    later_capacity=60,
    class_size=12,
    slots=(slots := protocol.memory_slots(policy, split, 12)),
    new_slots=max(split[1:]) * slots,
    old_slots=6 * slots,
    bilevel=bilevel.BilevelConfig(epochs=2, steps_per_epoch=2, inner_steps=2),
    policy=policy,
    base=SCHEDULE,
    train=SCHEDULE,
    balance=dataclasses.replace(SCHEDULE, epochs=1, learning_rate=0.01),
    augment=augment.CropFlip(1),
  )
  model = Model(network, method.head, 6)
  return phase.Config(model, method, **(settings | options)), stream


def _run(config, stream, seed=0, forget=lambda i: None):
  state, results = phase.begin_run(seed, config), []
  for i, data in enumerate(stream):
    state, result = phase.run_phase(state, data, config)
    results.append(result)
    forget(i)
  return state, results


class _Spy:
  """Images that note which of them are asked for."""

  def __init__(self, images):
    self._images = images
    self.asked = []

  def __getitem__(self, rows):
    self.asked.append(rows)
    return self._images[rows]


@pytest.mark.parametrize("name", sorted(methods.METHODS))
def test_every_method_learns_all_phases(name):
  method = methods.METHODS[name]()
  config, stream = _setup(method, finetune="head")
  spy = _Spy(stream._dataset.train_images)
  object.__setattr__(stream._dataset, "train_images", spy)
  state, results = _run(config, stream)
  # The classes of a phase are asked for in it, once and never again.
  asked = [
    set(stream._dataset.train_labels[rows].tolist()) for rows in spy.asked
  ]
  if method.joint:
    assert asked == [{0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4, 5}]
  else:
    assert asked == [{0, 1, 2}, {3}, {4, 5}]
  assert [r.classes_seen for r in results] == [3, 4, 6]
  assert state.phase == 3 and state.classes_seen == 6
  for result in results:
    for moment in ("trained", "final"):
      for readout in ("head", "nme"):
        counts = result.confusion[moment][readout]
        assert counts.shape == (result.classes_seen,) * 2
        # Six test images of every class, each counted once.
        assert counts.sum(1).tolist() == [6] * result.classes_seen
  assert state.memory.counts.tolist() == [3] * 6
  # Chance is 1/6. Few steps leave the head behind, the features are there.
  assert protocol.accuracy(results[-1].confusion["final"]["nme"]) > 0.7
  if method.joint:
    assert protocol.accuracy(results[-1].confusion["final"]["head"]) > 0.5


@pytest.mark.parametrize(
  "name, options",
  [
    ("lucir", dict(exemplars="mnemonics", adjust=True, transfer="in_out")),
    ("bic", dict(exemplars="random", adjust=True)),
    pytest.param(
      *("lwf", dict(exemplars="mnemonics", policy=protocol.Total(12))),
      marks=pytest.mark.slow,
    ),
    *(
      pytest.param(
        name, dict(exemplars=exemplars, adjust=True), marks=pytest.mark.slow
      )
      for name in ("lwf", "icarl", "bic", "lucir")
      for exemplars in ("random", "herding", "mnemonics")
    ),
  ],
)
def test_results_do_not_depend_on_old_raw_data(name, options):
  """After its phase a class's images are overwritten; nothing changes."""
  options |= dict(finetune="all")
  config, stream = _setup(methods.METHODS[name](), **options)
  honest, _ = _run(config, stream)
  config, stream = _setup(methods.METHODS[name](), **options)
  dataset = stream._dataset

  def forget(i):
    old = dataset.train_labels < sum(stream.classes_per_phase[: i + 1])
    dataset.train_images[old] = 0

  blind, _ = _run(config, stream, forget=forget)
  assert not dataset.train_images.any()
  jax.tree.map(np.testing.assert_array_equal, honest.variables, blind.variables)
  np.testing.assert_array_equal(honest.memory.images, blind.memory.images)


def test_the_model_after_the_fine_tune_is_the_next_teacher(monkeypatch):
  """With transfer and BiC's bias layers, all of which are in it."""
  config, stream = _setup(
    methods.BiC(), transfer="in_out", finetune="all", exemplars="herding"
  )
  fit, teachers, fitted = training.fit, [], []

  def spy(*args, **kwargs):
    teachers.append(kwargs.get("teacher"))
    fitted.append(fit(*args, **kwargs))
    return fitted[-1]

  monkeypatch.setattr(training, "fit", spy)
  state, _ = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  state, _ = phase.run_phase(state, stream[1], config)
  phase.run_phase(state, stream[2], config)
  # In each phase a model is trained, then tuned; both calls are noted.
  assert [t is None for t in teachers] == [True, True, False, True, False, True]
  for teacher, tuned in ((teachers[2], fitted[1]), (teachers[4], fitted[3])):
    jax.tree.map(np.testing.assert_array_equal, teacher, tuned)


def test_only_the_joint_upper_bound_sees_old_data():
  for method in (methods.LUCIR(), methods.Joint()):
    _, stream = _setup(method)
    labels = set(stream[2].labels.tolist())
    assert labels == (set(range(6)) if method.joint else {4, 5})


def test_same_seed_same_numbers_other_seed_other_numbers():
  config, stream = _setup(methods.LwF())
  one, _ = _run(config, stream, seed=0)
  two, _ = _run(config, stream, seed=0)
  other, _ = _run(config, stream, seed=1)
  jax.tree.map(np.testing.assert_array_equal, one.variables, two.variables)
  weight = lambda s: np.asarray(s.variables["params"]["head"]["weight"])
  assert (weight(one) != weight(other)).all()


@pytest.mark.parametrize(
  "name, scope",
  [
    ("lucir", "head"),
    pytest.param("bic", "transfer", marks=pytest.mark.slow),
    pytest.param("lucir", "all", marks=pytest.mark.slow),
    pytest.param("lwf", "head", marks=pytest.mark.slow),
  ],
)
def test_learned_exemplars_move_within_the_trust_region(name, scope):
  learned = bilevel.BilevelConfig(
    scope=scope, epochs=2, steps_per_epoch=2, inner_steps=2, max_change=2
  )
  method = methods.METHODS[name]()
  plain, stream = _setup(method)
  config = dataclasses.replace(
    plain, exemplars="mnemonics", adjust=True, bilevel=learned
  )
  # One phase: the same images, moved by at most two grey levels.
  before, _ = phase.run_phase(phase.begin_run(0, plain), stream[0], plain)
  after, result = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  change = np.abs(
    before.memory.images.astype(int) - after.memory.images.astype(int)
  )
  assert change[:3].any() and change.max() <= 2
  assert not change[3:].any()
  assert result.diagnostics["exemplars"]["max_change"] == change.max()
  # The next phase also moves the old ones, again by at most two.
  later, result = phase.run_phase(after, stream[1], config)
  moved = np.abs(
    later.memory.images[:3].astype(int) - after.memory.images[:3].astype(int)
  )
  assert moved.any() and moved.max() <= 2
  assert result.diagnostics["adjust"]["max_change"] == moved.max()
  np.testing.assert_array_equal(later.memory.counts, [3, 3, 3, 3, 0, 0])


def test_exemplars_of_a_few_classes_at_a_time():
  """Each class alone is what learning the exemplars of one class gives."""
  method, epochs = methods.LUCIR(), []
  options = dict(exemplars="mnemonics", adjust=True)
  config, stream = _setup(method, exemplar_chunk=1, **options)
  plain, _ = _setup(method, exemplars="herding")
  report = lambda step: epochs.append((step.stage, step.epoch, step.epochs))
  begin = phase.begin_run(0, config)
  state, result = phase.run_phase(begin, stream[0], config, report)
  assert [e for s, *e in epochs if s == "exemplars"][1:] == [
    [i, 6] for i in range(6)
  ]
  # The middle class by hand: its images and its data only.
  herding, _ = phase.run_phase(begin, stream[0], plain)
  variables, data = herding.variables, stream[0]
  own = data.labels == 1
  features, _ = extract(config.model, method, variables, data.images)
  key = jax.random.fold_in(Keys(begin.key, 0)("exemplars"), 1)
  images, history = exemplars.learn(
    key,
    herding.memory.images[1],
    np.full(3, 1, np.int32),
    variables,
    (features[own], data.labels[own]),
    level=phase.exemplar_level(config),
    seen=np.arange(6) < 3,
    rows=3,
    data_rows=own.sum(),
  )
  np.testing.assert_array_equal(state.memory.images[1], images)
  assert (images != herding.memory.images[1]).any()
  assert len(result.diagnostics["exemplars"]["loss"]) == len(history.loss)
  # Later, every old class is adjusted by itself.
  later, _ = phase.run_phase(state, stream[1], config)
  for label in range(3):
    assert (later.memory.images[label] != state.memory.images[label]).any()


def test_classes_are_split_in_order():
  labels = np.array([4, 4, 1, 7, 9, 9])
  groups = [g.tolist() for g in exemplars.split_classes(labels, 2)]
  assert groups == [[1, 4], [7, 9]]
  assert [g.tolist() for g in exemplars.split_classes(labels, 3)] == [
    [1, 4, 7],
    [9],
  ]
  assert len(exemplars.split_classes(labels, None)) == 1
  assert len(exemplars.split_classes(labels, 4)) == 1


def test_adjustment_works_for_chosen_exemplars_too():
  config, stream = _setup(methods.LUCIR(), exemplars="random", adjust=True)
  state, _ = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  later, _ = phase.run_phase(state, stream[1], config)
  assert (later.memory.images[:3] != state.memory.images[:3]).any()


def test_a_total_budget_shrinks_old_classes_and_is_never_exceeded():
  policy = protocol.Total(13)
  config, stream = _setup(methods.LwF(), policy=policy, exemplars="random")
  state, results = _run(config, stream)
  assert [r.memory_images for r in results] == [12, 12, 12]
  assert state.memory.counts.tolist() == [2] * 6
  assert results[-1].memory_bytes == 12 * 8 * 8 * 3


@pytest.mark.parametrize("exemplars", ["random", "herding"])
def test_memory_holds_images_of_the_right_class(exemplars):
  config, stream = _setup(methods.LwF(), exemplars=exemplars)
  state, _ = _run(config, stream)
  data = stream._dataset
  images, labels = memory.flat(state.memory)
  for image, label in zip(images, labels, strict=True):
    own = data.train_images[data.train_labels == label]
    assert (own == image).all((1, 2, 3)).any()


def test_lucir_freezes_old_rows_through_a_phase():
  config, stream = _setup(methods.LUCIR())
  state, _ = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  after, _ = phase.run_phase(state, stream[1], config)
  weight = lambda s: np.asarray(s.variables["params"]["head"]["weight"])
  np.testing.assert_array_equal(weight(after)[:3], weight(state)[:3])
  np.testing.assert_array_equal(weight(after)[4:], weight(state)[4:])
  assert (weight(after)[3] != weight(state)[3]).all()


def test_bic_never_trains_on_what_it_calibrates_with(monkeypatch):
  pools, held = [], []
  make_pool = training.make_pool
  monkeypatch.setattr(
    training, "make_pool", lambda *a: pools.append(a[0]) or make_pool(*a)
  )
  monkeypatch.setattr(
    phase,
    "extract",
    lambda m, f, v, images: held.append(images) or extract(m, f, v, images),
  )
  config, stream = _setup(methods.BiC())
  state, _ = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  pools.clear(), held.clear()
  phase.run_phase(state, stream[1], config)
  as_rows = lambda images: {image.tobytes() for image in images}
  validation = held[0]
  assert len(validation) == 4  # One of each old class and one new image.
  assert not as_rows(pools[0]) & as_rows(validation)
  assert len(pools[0]) + len(validation) == 12 + 9


@pytest.mark.parametrize("exemplars", ["herding", "random", "mnemonics"])
def test_images_pass_a_trained_model_once(monkeypatch, exemplars):
  """Also if the head is fine-tuned: the features stay what they were."""
  config, stream = _setup(methods.LwF(), exemplars=exemplars, finetune="head")
  state, _ = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  passed = []
  for module in (phase, evaluate):
    monkeypatch.setattr(
      module, "extract", lambda *a: passed.append(len(a[3])) or extract(*a)
    )
  phase.run_phase(state, stream[1], config)
  new, old, test, kept = 12, 3 * 3, 4 * 6, 4 * 3
  made_from = {"herding": new, "random": 0, "mnemonics": new + old}[exemplars]
  assert sum(passed) == made_from + test + kept


def _compilations(policy):
  """Programs compiled in each of six phases."""
  counts, phases = [], []
  listener = lambda name, *_, **__: counts.append(name)
  config, stream = _setup(
    methods.BiC(),
    split=(1,) * 6,
    policy=policy,
    finetune="head",
    transfer="out",
    exemplars="mnemonics",
    adjust=True,
  )
  jax.monitoring.register_event_duration_secs_listener(listener)
  try:
    _run(config, stream, forget=lambda _: phases.append(_compiled(counts)))
  finally:
    jax.monitoring.unregister_event_duration_listener(listener)
  return np.diff([0, *phases])


def _compiled(events):
  return events.count("/jax/core/compile/backend_compile_duration")


@pytest.mark.parametrize(
  "policy",
  [
    protocol.PerClass(3),
    pytest.param(protocol.Total(18), marks=pytest.mark.slow),
  ],
)
def test_everything_is_compiled_in_the_first_two_phases(policy):
  jax.clear_caches()
  compiled = _compilations(policy)
  assert compiled[0] > 0 and compiled[1] > 0
  assert compiled[2:].tolist() == [0] * 4
