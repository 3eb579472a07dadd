"""The stages that move Θ: what they train on, from where, and what stays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import tiny

from mnemonics_jax import augment, data, memory, methods, networks, phase
from mnemonics_jax.phase import evaluate, sgd, train
from mnemonics_jax.phase.evaluate import extract

SHORT = phase.Schedule(epochs=1, learning_rate=0.05, batch_size=16)


def _second_phase(method, **options):
  """A tiny run that stands before its second phase."""
  options = dict(base=SHORT, train=SHORT, balance=SHORT) | options
  config, stream = tiny.setup(method, **options)
  state, _ = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  return phase.Phase(state, stream[1], config)


def _watch(monkeypatch):
  """What `sgd.fit` is called with from here on, and what it returns."""
  fit, calls = sgd.fit, []

  def watched(key, variables, pool, task, stage):
    fitted = fit(key, variables, pool, task, stage)
    calls.append((pool, task, fitted))
    return fitted

  monkeypatch.setattr(sgd, "fit", watched)
  return calls


def _rows(images):
  return {image.tobytes() for image in np.asarray(images)}


def test_the_pool_is_the_memory_and_the_new_images(monkeypatch):
  second = _second_phase(methods.LwF())
  calls = _watch(monkeypatch)
  train.train_model(second)
  ((pool, task, _),) = calls
  assert len(pool.labels) == second.config.sizes.pool == 36
  assert pool.count == 9 + 12
  kept, labels = memory.flat(second.state.memory)
  assert _rows(pool.images[:21]) == _rows(kept) | _rows(second.data.images)
  assert pool.labels[:21].tolist() == [*labels, *second.data.labels]
  assert task.scope == "all" and task.schedule == second.config.train
  assert task.rows.tolist() == [True] * 4 + [False] * 2


def test_the_upper_bound_replays_nothing_and_has_no_teacher(monkeypatch):
  second = _second_phase(methods.Joint())
  calls = _watch(monkeypatch)
  train.train_model(second)
  ((pool, task, _),) = calls
  assert pool.count == 4 * 12 and task.teacher is None


def _run_phases(config, parts):
  state = phase.begin_run(0, config)
  for part in parts:
    state, _ = phase.run_phase(state, part, config)
  return state


def test_the_model_after_the_fine_tune_is_the_next_teacher(monkeypatch):
  """With transfer and BiC's bias layers, all of which are in it."""
  calls = _watch(monkeypatch)
  config, stream = tiny.setup(
    methods.BiC(), transfer="in_out", finetune="all",
    base=SHORT, train=SHORT, balance=SHORT,
  )  # fmt: skip
  _run_phases(config, stream)
  # In each phase a model is trained, then tuned; both calls are noted.
  teachers = [task.teacher for _, task, _ in calls]
  assert [t is None for t in teachers] == [True, True, False, True, False, True]
  for now, before in ((2, 1), (4, 3)):
    jax.tree.map(np.testing.assert_array_equal, teachers[now], calls[before][2])


def test_every_stage_has_its_own_schedule(monkeypatch):
  """Phase 0, its fine-tune, a later phase, its fine-tune."""
  base, later, balance = (
    phase.Schedule(1, rate, (), batch_size=16) for rate in (0.05, 0.04, 0.003)
  )
  calls = _watch(monkeypatch)
  config, stream = tiny.setup(
    methods.LwF(), finetune="all", base=base, train=later, balance=balance
  )
  _run_phases(config, list(stream)[:2])
  schedules = [task.schedule for _, task, _ in calls]
  assert schedules == [base, balance, later, balance]
  # The fine-tune of phase 1 sees old and new classes alike.
  tuned_on = calls[-1][0]
  labels = tuned_on.labels[: int(tuned_on.count)].tolist()
  assert labels == sorted([0, 1, 2, 3] * 3)


def test_old_exemplars_are_rehearsed_as_often_as_configured(monkeypatch):
  """Three of each of three classes, and twelve new images: 21 draws."""
  calls = _watch(monkeypatch)
  config, stream = tiny.setup(
    methods.LwF(), finetune="head", rehearsal="balanced",
    base=SHORT, train=SHORT, balance=SHORT,
  )  # fmt: skip
  _run_phases(config, list(stream)[:2])
  quotas = [feed.quota for feed, _, _ in calls]
  assert [quota is None for quota in quotas] == [True, True, False, True]
  assert quotas[2].tolist() == [6, 5, 5, 5, 0, 0]


def test_what_bic_holds_out_is_not_rehearsed(monkeypatch):
  """Of three exemplars one: two are left, and eleven of twelve new images."""
  second = _second_phase(methods.BiC(), rehearsal="2")
  calls = _watch(monkeypatch)
  train.train_model(second)
  ((feed, _, _),) = calls
  # 4, 4, 4 and 11 are 23; 17/23 of that is 2.96 and 8.13.
  assert feed.quota.tolist() == [3, 3, 3, 8, 0, 0]
  held = {image.tobytes() for image in train._held_out(second)[0]}
  drawn = {image.tobytes() for image in np.asarray(feed.images[:17])}
  assert not held & drawn


def test_transfer_is_trained_alone_and_folded_in(monkeypatch):
  second = _second_phase(methods.LwF(), transfer="in_out")
  calls = _watch(monkeypatch)
  variables = train.train_model(second)
  ((_, task, fitted),) = calls
  assert task.scope == "transfer" and "transfer" in fitted
  assert "transfer" not in variables
  images = jnp.asarray(second.data.images, jnp.float32) / 255
  logits = jax.jit(lambda v: second.config.model.apply(v, images)[0].logits)
  np.testing.assert_allclose(
    logits(variables), logits(fitted), rtol=1e-3, atol=1e-4
  )


def test_lucir_imprints_new_rows_and_keeps_the_old_ones(monkeypatch):
  """Features of a few images are there at a time."""
  second = _second_phase(methods.LUCIR())
  monkeypatch.setattr(evaluate, "TOGETHER", 5)
  monkeypatch.setattr(sgd, "fit", lambda key, variables, *_: variables)
  begun = train.train_model(second)["params"]["head"]["weight"]
  before = second.state.variables["params"]["head"]["weight"]
  np.testing.assert_array_equal(begun[:3], before[:3])
  features, _ = extract(
    second.config.model, methods.LUCIR(), second.state.variables,
    second.data.images,
  )  # fmt: skip
  unit = features / np.linalg.norm(features, axis=1, keepdims=True)
  mean = unit.mean(0) / np.linalg.norm(unit.mean(0))
  norm = np.linalg.norm(before[:3], axis=1).mean()
  np.testing.assert_allclose(begun[3], norm * mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
  "policy, each",
  [(memory.PerClass(3), [1, 1]), (memory.Total(78), [2, 1])],
)
def test_bic_never_trains_on_what_it_calibrates_with(monkeypatch, policy, each):
  """In no phase, nor in a fine-tune; a shrinking memory keeps them apart."""
  calls, held = _watch(monkeypatch), []
  monkeypatch.setattr(
    train, "extract", lambda *args: held.append(args[3]) or extract(*args)
  )
  config, stream = tiny.setup(
    methods.BiC(), data=tiny.dataset(train=30), memory=policy,
    exemplars="random", finetune="all", base=SHORT, train=SHORT, balance=SHORT,
  )  # fmt: skip
  state = _run_phases(config, stream)
  trained_on = [_rows(pool.images[: int(pool.count)]) for pool, _, _ in calls]
  assert len(trained_on) == 6 and len(held) == 2
  for images, classes, count in zip(held, (4, 6), each, strict=True):
    assert len(images) == len(_rows(images)) == classes * count
    assert not _rows(images) & set().union(*trained_on)
  # What is held out of old classes had been held out before.
  assert len(_rows(held[0]) & _rows(held[1])) == 4 * each[1]
  # The rest of the memory is what the fine-tune trains on.
  kept = _rows(memory.flat(state.memory)[0])
  assert kept - trained_on[-1] == _rows(held[1])
  assert trained_on[-1] < kept


def test_calibration_moves_the_bias_layers_and_nothing_else(monkeypatch):
  second = _second_phase(methods.BiC())
  calls = _watch(monkeypatch)
  variables = train.train_model(second)
  ((_, _, fitted),) = calls
  extra = variables.keys() - {"params", "batch_stats"}
  assert extra
  for name, branch in variables.items():
    same = jax.tree.map(lambda a, b: bool((a == b).all()), branch, fitted[name])
    assert all(jax.tree.leaves(same)) == (name not in extra)


@pytest.mark.parametrize("scope", ["head", "all"])
def test_the_fine_tune_trains_on_the_memory_alone(monkeypatch, scope):
  second = _second_phase(methods.LwF(), finetune=scope)
  calls = _watch(monkeypatch)
  store = second.state.memory
  variables = train.finetune(second, second.state.variables, store)
  ((pool, task, _),) = calls
  assert pool.count == 9 and _rows(pool.images[:9]) == _rows(
    memory.flat(store)[0]
  )
  assert task.teacher is None and task.rows.tolist() == [True] * 4 + [False] * 2
  backbone = lambda variables: jax.tree.leaves(variables["params"]["backbone"])
  moved = [
    bool((a != b).any())
    for a, b in zip(
      backbone(variables), backbone(second.state.variables), strict=True
    )
  ]
  assert any(moved) == (scope == "all")


def test_the_fine_tune_of_e2e_is_taught_by_the_model_before_it(monkeypatch):
  second = _second_phase(methods.E2E(), finetune="all")
  before = train.train_model(second)
  calls = _watch(monkeypatch)
  train.finetune(second, before, second.state.memory)
  ((_, task, after),) = calls
  jax.tree.map(np.testing.assert_array_equal, task.teacher, before)
  assert task.classes.old_phases.any(1).tolist() == [True, True, False]
  assert task.rows.tolist() == [True] * 4 + [False] * 2
  weight = lambda variables: variables["params"]["head"]["weight"]
  assert (weight(after)[:4] != weight(before)[:4]).all()


@pytest.mark.slow
def test_bfloat16_learns_digits():
  stream = data.stream(data.load("digits"), phases=5)
  network = networks.resnet8(
    image_shape=stream.image_shape, mean=stream.mean, std=stream.std,
    dtype="bfloat16",
  )  # fmt: skip
  config = phase.Config(
    network, methods.LUCIR(), stream.shape, memory=memory.PerClass(5),
    base=phase.Schedule(4, 0.1, (2, 3), batch_size=64),
    augment=augment.CropFlip(1, mirror=False),
  )  # fmt: skip
  first = phase.Phase(phase.begin_run(0, config), stream[0], config)
  variables = phase.train_model(first)
  assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(variables))
  images, labels = first.data.test_images, first.data.test_labels
  logits = extract(config.model, config.method, variables, images)[1]
  # Five digits: chance is a fifth.
  assert np.mean(logits[:, :5].argmax(-1) == labels) > 0.9


def test_classes_count_alike_in_the_fine_tune_whatever_is_kept(monkeypatch):
  config, stream = tiny.setup(methods.LwF(), finetune="head")
  state, images = phase.begin_run(0, config), tiny.dataset().train_images
  kept = state.memory
  for label, count in enumerate((2, 6, 4)):
    kept = memory.insert(kept, label, images[:count])
  quotas, make_feed = [], train.make_feed

  def watched(*arguments):
    quotas.append(arguments[-1].tolist())
    return make_feed(*arguments)

  monkeypatch.setattr(train, "make_feed", watched)
  train.finetune(phase.Phase(state, stream[0], config), state.variables, kept)
  assert quotas == [[4, 4, 4, 0, 0, 0]]
