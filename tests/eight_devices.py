"""One device against eight virtual ones; `devices_test.py` runs this file.

The number of devices is fixed when JAX starts, hence a process of its own.
"""

import re

import interrupted
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from benchmarks import jax_train
from experiments.settings import Settings, build
from mnemonics_jax import bilevel, devices, exemplars, phase, protocol, training
from mnemonics_jax.evaluate import extract
from mnemonics_jax.methods import Classes

# 12 images a class, 3 of which are kept: numbers that eight does not divide.
CONFIG, STREAM = build(
  Settings(
    "tiny",
    "test",
    net="resnet8",
    memory="per_class:3",
    base_classes=2,
    phases=2,
    batch_size=64,
    base_epochs=4,
    epochs=4,
    meta_epochs=2,
    finetune="head",
    finetune_epochs=1,
    adjust=True,
    learning_rate=0.01,
  ),
  tiny.dataset(),
)


def _on_both(program, many=8):
  """What `program` returns on one device and on `many`, on the host."""
  both = []
  for count in (1, many):
    with devices.use(count):
      assert devices.count() == count
      both.append(jax.tree.map(np.asarray, program()))
  return both


def _assert_close(one, many, tolerance=1e-5):
  close = lambda a, b: np.testing.assert_allclose(
    b, a, rtol=tolerance, atol=tolerance
  )
  jax.tree.map(close, one, many)


def _fit(reports):
  state, data = phase.begin_run(0, CONFIG), STREAM[0]
  classes = Classes(jnp.arange(6) < 1, jnp.arange(6) == 1)
  return training.fit(
    jax.random.key(1),
    state.variables,
    training.make_pool(data.images, data.labels, CONFIG.capacity),
    model=CONFIG.model,
    method=CONFIG.method,
    schedule=CONFIG.base,
    classes=classes,
    rows=classes.seen,
    teacher=state.variables,
    augment=CONFIG.augment,
    report=lambda step: reports.append(step.metrics) if step.metrics else None,
  )


def test_training_gives_the_losses_of_one_device():
  """With a teacher, augmentation and batch statistics over the whole batch."""
  histories = []

  def program():
    histories.append([])
    return _fit(histories[-1])

  one, many = _on_both(program)
  _assert_close(*histories)
  _assert_close(one["batch_stats"], many["batch_stats"], 1e-4)


def test_a_training_step_only_sums_over_devices(monkeypatch):
  """Nothing is resharded, and nothing passes between host and devices."""
  steps, texts = training._steps, []

  def watched(*args, **static):
    program = steps.lower(*args, **static).compile()
    texts.append(program.as_text())
    args = jax.tree.map(jnp.asarray, args)
    with jax.transfer_guard("disallow"):
      return program(*args)

  monkeypatch.setattr(training, "_steps", watched)
  with devices.use(8):
    _fit([])
  _assert_only_sums(texts[0])


def test_each_device_holds_its_share_of_the_images():
  images = np.random.default_rng(0).integers(0, 256, (21, 2, 2, 3), np.uint8)
  with devices.use(8):
    pool = training.make_pool(images, np.arange(21), capacity=21)
    rows = jnp.array([20, 0, 7, 7, 3, 11, 2, 1] * 2)
    draw = jax.jit(devices.draw)
    batch, uneven = draw(pool.images, rows), draw(pool.images, rows[:5])
    text = draw.lower(pool.images, rows[:5]).compile().as_text()
  shares = pool.images.addressable_shards
  assert [len(share.data) for share in shares] == [3] * 8
  np.testing.assert_array_equal(np.asarray(pool.images)[:21], images)
  np.testing.assert_array_equal(batch, images[rows])
  np.testing.assert_array_equal(uneven, images[rows[:5]])
  _assert_only_sums(text)
  assert [len(part.data) for part in batch.addressable_shards] == [2] * 8


def _assert_only_sums(text):
  counts = jax_train.moves(text)
  assert counts["all-reduce"]
  assert not any(counts[name] for name in jax_train.COPIES), counts
  assert not re.search(r"\b(send|recv|infeed|outfeed)\(", text)


def _learn(scope, batch_size):
  recipe = bilevel.BilevelConfig(
    scope=scope,
    epochs=2,
    steps_per_epoch=2,
    inner_steps=2,
    batch_size=batch_size,
  )
  level = exemplars.configure(
    recipe, CONFIG.model, CONFIG.method, CONFIG.augment
  )
  variables, data = phase.begin_run(0, CONFIG).variables, STREAM[0]
  inputs = data.images
  if scope == "head":
    inputs, _ = extract(CONFIG.model, CONFIG.method, variables, inputs)
  images, history = exemplars.learn(
    jax.random.key(2),
    data.images[:9],
    data.labels[:9],
    variables,
    (inputs, data.labels),
    level=level,
    seen=jnp.arange(6) < 2,
    rows=9,
    data_rows=len(data.labels),
  )
  return images.astype(int), history


@pytest.mark.parametrize(
  "scope, many, batch_size", [("all", 8, 24), ("head", 3, 20)]
)
def test_exemplars_are_learned_as_on_one_device(
  monkeypatch, scope, many, batch_size
):
  """Nine exemplars: some devices hold padding. 20 images: they cannot share."""
  texts, steps = [], bilevel.meta_steps

  def watched(*args, **static):
    texts.append(steps.lower(*args, **static).compile().as_text())
    return steps(*args, **static)

  monkeypatch.setattr(bilevel, "meta_steps", watched)
  (one, history), (spread, histories) = _on_both(
    lambda: _learn(scope, batch_size), many
  )
  # Exemplars are brought together at the end of a call, but no data ever are.
  data = "u8[24," if scope == "all" else "f32[24,"
  assert "all-gather(" in texts[-1]
  for line in texts[-1].splitlines():
    assert not ("all-gather(" in line and data in line), line
  _assert_close(history.loss, histories.loss)
  _assert_close(history.displacement, histories.displacement, 1e-3)
  # Of pixels on the border between two grey levels one or the other may win.
  assert np.abs(one - spread).max() <= 1
  assert (one != spread).mean() < 0.01


def test_adjusting_takes_as_many_steps_on_any_number_of_devices(monkeypatch):
  """Of eight exemplars, four validate; three devices make twelve of eight."""
  level = exemplars.configure(
    bilevel.BilevelConfig(batch_size=4, steps_per_epoch=None), CONFIG.model, CONFIG.method,
    CONFIG.augment,
  )  # fmt: skip
  taken = []

  def watched(*_, config, **__):
    taken.append(config.steps_per_epoch)
    raise InterruptedError

  monkeypatch.setattr(bilevel, "adjust_exemplars", watched)
  for count in (1, 3):
    with devices.use(count), pytest.raises(InterruptedError):
      exemplars.adjust(
        jax.random.key(0),
        np.zeros((8, 8, 8, 3), np.uint8),
        np.arange(8) % 2,
        phase.begin_run(0, CONFIG).variables,
        level=level,
        seen=jnp.arange(6) < 2,
        rows=8,
      )
  assert taken == [1, 1]


def test_a_meta_step_only_sums_over_devices():

  def program(images, labels, variables, valid):
    batch = devices.split(bilevel.Exemplars(images, labels))
    out = bilevel.hypergradient(
      batch,
      variables,
      devices.split(valid),
      apply_fn=lambda v, x: CONFIG.model.apply(v, x)[0].logits,
      config=bilevel.BilevelConfig(inner_steps=2),
    )
    return out[0], devices.split(out[1])

  with devices.use(8):
    images, labels = jnp.zeros((64, 8, 8, 3)), jnp.arange(64) % 6
    variables = phase.begin_run(0, CONFIG).variables
    compiled = jax.jit(program).lower(
      images, labels, variables, bilevel.Exemplars(images, labels)
    )
    text = compiled.compile().as_text()
  _assert_only_sums(text)


def test_whole_phases_run_and_compile_once():
  events, listener = [], lambda name, *_, **__: events.append(name)
  jax.monitoring.register_event_duration_secs_listener(listener)
  with devices.use(8):
    state = phase.begin_run(0, CONFIG)
    for data in STREAM:
      events.clear()
      state, result = phase.run_phase(state, data, CONFIG)
  assert state.memory.counts.tolist() == [3] * 6
  assert {"exemplars", "adjust"} <= result.changed.keys()
  # Chance is 1/6; nothing is compiled in the third phase.
  assert protocol.accuracy(result.confusion["final"]["nme"]) > 0.5
  assert "/jax/core/compile/backend_compile_duration" not in events


@pytest.mark.slow
def test_a_run_continues_on_another_number_of_devices(tmp_path, capsys):
  """Between phases, with a base model that was shared."""
  workdir, models = tmp_path / "out", tmp_path / "models"
  after = lambda: (workdir / "seed_0" / "checkpoints" / "phase_00").exists()
  options = dict(
    base_models=models, exemplars="herding", adjust=False, finetune="none"
  )
  with devices.use(8):
    assert not interrupted.run_until(workdir, after, **options)
  with devices.use(1):
    capsys.readouterr()
    interrupted.run(workdir, **options)
  assert "Continuing seed 0 in phase 1." in capsys.readouterr().out
  assert (workdir / "results.json").exists()
  assert len(list(models.iterdir())) == 1
