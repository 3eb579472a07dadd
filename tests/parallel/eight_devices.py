"""One device against eight virtual ones; `mesh_test.py` runs this file.

The number of devices is fixed when JAX starts, hence a process of its own.
"""

import dataclasses
import re
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import compilations, interrupted, programs, tiny

from benchmarks import jax_train
from mnemonics_jax import UserError, bilevel, methods, phase, protocol, runs
from mnemonics_jax import memory as memory_lib
from mnemonics_jax.bilevel import meta_level, optimize
from mnemonics_jax.data.images import Resident, Stored
from mnemonics_jax.exemplars import learn
from mnemonics_jax.exemplars.choose import STRATEGIES, Chosen
from mnemonics_jax.methods import Classes
from mnemonics_jax.nn.augment import CropFlip
from mnemonics_jax.parallel import mesh
from mnemonics_jax.phase import Schedule, Stage, Streamed, sgd
from mnemonics_jax.phase.evaluate import extract
from mnemonics_jax.phase.feed import block_steps, make_pool

# 12 images a class, 3 of which are kept: numbers that eight does not divide.
SCHEDULE = Schedule(4, 0.01, (2, 3), batch_size=64)
CONFIG, STREAM = tiny.setup(
  methods.LUCIR(),
  split=(2, 2, 2),
  width=16,
  exemplars="mnemonics",
  adjust=True,
  finetune="head",
  base=SCHEDULE,
  train=SCHEDULE,
  balance=Schedule(1, 0.01, (), batch_size=64),
  augment=CropFlip(),
)


def _on_both(program, many=8):
  """What `program` returns on one device and on `many`, on the host."""
  both = []
  for count in (1, many):
    with mesh.use(count):
      assert mesh.device_count() == count
      both.append(jax.tree.map(np.asarray, program()))
  return both


def _assert_close(one, many, tolerance=1e-5):
  close = lambda a, b: np.testing.assert_allclose(
    b, a, rtol=tolerance, atol=tolerance
  )
  jax.tree.map(close, one, many)


def _training():
  """A model, what it is trained for, and the images: with a teacher."""
  state, data = phase.begin_run(0, CONFIG), STREAM[0]
  classes = Classes(jnp.arange(6) < 1, jnp.arange(6) == 1)
  task = sgd.Task(
    classes,
    classes.seen,
    state.variables,
    model=CONFIG.model,
    method=CONFIG.method,
    schedule=CONFIG.base,
    augment=CONFIG.augment,
  )
  pool = make_pool(data.images, data.labels, CONFIG.sizes.pool)
  return state.variables, task, pool


def _streamed(store=Resident):
  data = STREAM[0]
  images = Stored(store(data.images), np.arange(len(data.images)))
  return Streamed(images, data.labels, CONFIG.sizes.pool)


@pytest.mark.parametrize("many", [8, pytest.param(2, marks=pytest.mark.slow)])
def test_training_gives_the_losses_of_one_device(many):
  """With a teacher, augmentation and batch statistics over the whole batch.

  Images that stream give the bits of those that are there.
  """
  histories = []

  def program():
    told = []
    variables, task, pool = _training()
    stage = Stage(report=told.append)
    fitted = sgd.fit(jax.random.key(1), variables, pool, task, stage)
    histories.append([step.metrics for step in told if step.metrics])
    again = sgd.fit(jax.random.key(1), variables, _streamed(), task)
    jax.tree.map(np.testing.assert_array_equal, fitted, again)
    return fitted

  one, spread = _on_both(program, many)
  assert len(histories[0]) == 4
  _assert_close(*histories)
  _assert_close(one["batch_stats"], spread["batch_stats"], 1e-4)


class _Noted(Resident):
  """Notes how many rows are read at a time."""

  counts: ClassVar[list[int]] = []

  def read(self, rows, draws=None):
    self.counts.append(len(rows))
    return super().read(rows, draws)


def test_each_device_gets_its_share_of_every_batch():
  """Also from the thread that reads ahead, which has to know of the mesh."""
  key, schedule = jax.random.key(1), dataclasses.replace(SCHEDULE, batch_size=8)
  with mesh.use(8):
    pool = _training()[2]
    for feed in (pool, _streamed(_Noted)):
      block, stop = next(feed.blocks(key, schedule))
      shares = block.images.addressable_shards
      assert {share.device for share in shares} == set(jax.devices())
      # Two classes of 12 images: three steps, four in the largest phase.
      assert stop == 3 and block.images.shape[0] == block_steps(
        schedule, CONFIG.sizes.pool, (8, 8, 3)
      )
      assert {share.data.shape[:2] for share in shares} == {
        (len(block.images), 1)
      }
      assert block.labels.is_fully_replicated
  assert set(_Noted.counts) == {3}  # Of each of eight devices.


def test_a_training_step_only_sums_over_devices(unchecked):
  """Nothing is resharded, and nothing passes between host and devices.

  `unchecked`, because lowering builds trees whose leaves are no arrays.
  """
  with mesh.use(8):
    variables, task, pool = _training()
    state = sgd.init_training(task, jax.tree.map(jnp.array, variables))
    sums = sgd.zero_metrics(variables, task)
    key = jax.random.key(1)
    block, _ = next(pool.blocks(key, task.schedule))
    span = dict(start=jnp.int32(0), stop=jnp.int32(1))
    program = sgd.epoch_steps.lower(
      state, sums, block, key, task=task, **span
    ).compile()
    with jax.transfer_guard("disallow"):
      _, sums = program(state, sums, block, key, task=task, **span)
    assert np.isfinite(sums["loss"])
  _assert_only_sums(program.as_text())


def test_each_device_holds_its_share_of_the_images():
  images = np.random.default_rng(0).integers(0, 256, (21, 2, 2, 3), np.uint8)
  with mesh.use(8):
    pool = make_pool(images, np.arange(21), capacity=21)
    rows = jnp.array([20, 0, 7, 7, 3, 11, 2, 1] * 2)
    draw = jax.jit(mesh.take)
    batch, uneven = draw(pool.images, rows), draw(pool.images, rows[:5])
    text = draw.lower(pool.images, rows[:5]).compile().as_text()
  shares = pool.images.addressable_shards
  assert [len(share.data) for share in shares] == [3] * 8
  np.testing.assert_array_equal(np.asarray(pool.images)[:21], images)
  np.testing.assert_array_equal(batch, images[rows])
  np.testing.assert_array_equal(uneven, images[rows[:5]])
  _assert_only_sums(text)
  with mesh.use(8):
    batches = jax.jit(mesh.take_batches)
    found = batches(pool.images, rows.reshape(2, 8))
    text = batches.lower(pool.images, rows.reshape(2, 8)).compile().as_text()
  np.testing.assert_array_equal(found, images[rows.reshape(2, 8)])
  _assert_only_sums(text, "reduce-scatter")
  assert [len(part.data) for part in batch.addressable_shards] == [2] * 8


def _assert_only_sums(text, kind="all-reduce"):
  counts = jax_train.moves(text)
  assert counts[kind]
  assert not any(counts[name] for name in jax_train.COPIES), counts
  assert not re.search(r"\b(send|recv|infeed|outfeed)\(", text)


def _first_phase(**recipe):
  recipe = dataclasses.replace(CONFIG.bilevel, **recipe)
  config = dataclasses.replace(CONFIG, bilevel=recipe)
  return phase.Phase(phase.begin_run(0, config), STREAM[0], config)


def _learn(scope, batch_size):
  first = _first_phase(scope=scope, batch_size=batch_size)
  variables, data = first.state.variables, first.data
  inputs = data.images
  if scope == "head":
    inputs, _ = extract(CONFIG.model, CONFIG.method, variables, inputs)
  chosen = Chosen(data.images[:9], data.labels[:9], inputs, data.labels)
  strategy = STRATEGIES["mnemonics"].of(first.config)
  change = strategy.learn(first, variables, chosen)
  return change.after.astype(int), change.history


@pytest.mark.parametrize(
  "scope, many, batch_size",
  [("all", 8, 24), pytest.param("head", 3, 20, marks=pytest.mark.slow)],
)
def test_exemplars_are_learned_as_on_one_device(
  unchecked, monkeypatch, scope, many, batch_size
):
  """Nine exemplars: some devices hold padding. 20 images: they cannot share."""
  texts, steps = [], meta_level._steps

  def watched(*args):
    texts.append(steps.lower(*args).compile().as_text())
    return steps(*args)

  monkeypatch.setattr(meta_level, "_steps", watched)
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
  taken = []

  def watched(problem, _):
    taken.append(problem.steps)
    raise InterruptedError

  monkeypatch.setattr(optimize, "run_steps", watched)
  for count in (1, 3):
    with mesh.use(count), pytest.raises(InterruptedError):
      first = _first_phase(batch_size=4, steps_per_epoch=None)
      images, labels = np.zeros((8, 8, 8, 3), np.uint8), np.arange(8) // 4
      kept = memory_lib.store(first.state.memory, images, labels)
      first = phase.Phase(
        first.state._replace(memory=kept), STREAM[0], first.config
      )
      learn.adjust(first, first.state.variables)
  assert taken == [1, 1]


def test_a_meta_step_only_sums_over_devices():

  def program(images, labels, variables, valid):
    batch = mesh.shard(bilevel.Exemplars(images, labels))
    out = bilevel.hypergradient(
      batch,
      variables,
      mesh.shard(valid),
      apply_fn=lambda v, x: CONFIG.model.apply(v, x)[0].logits,
      config=bilevel.BilevelConfig(inner_steps=2),
    )
    return out[0], mesh.shard(out[1])

  with mesh.use(8):
    images, labels = jnp.zeros((64, 8, 8, 3)), jnp.arange(64) % 6
    variables = phase.begin_run(0, CONFIG).variables
    compiled = jax.jit(program).lower(
      images, labels, variables, bilevel.Exemplars(images, labels)
    )
    text = compiled.compile().as_text()
  _assert_only_sums(text)


def test_whole_phases_run_and_compile_once():
  with mesh.use(8), compilations.counted() as count:
    state = phase.begin_run(0, CONFIG)
    for data in STREAM:
      before = count.programs
      state, result = phase.run_phase(state, data, CONFIG)
    assert count.programs == before > 0  # Nothing in the third phase.
  assert state.memory.counts.tolist() == [3] * 6
  assert {"exemplars", "adjust"} <= result.changed.keys()
  # Chance is 1/6.
  assert protocol.accuracy(result.confusion["final"]["nme"]) > 0.5


def test_a_batch_that_devices_cannot_share_is_refused(tmp_path):
  with (
    mesh.use(5),
    pytest.raises(UserError, match="`batch_size=64`") as refused,
  ):
    runs.run(CONFIG, STREAM, tmp_path / "run")
  assert refused.value.field == "batch_size"
  assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_continues_on_another_number_of_devices(tmp_path, capsys):
  """Between phases, with a base model that was shared."""
  workdir, models = tmp_path / "out", tmp_path / "models"
  after = lambda: (workdir / "seed_0" / "checkpoints" / "phase_00").exists()
  options = dict(
    base_models=models, exemplars="herding", adjust=False, finetune="none"
  )
  with mesh.use(8):
    assert not interrupted.run_until(workdir, after, **options)
  with mesh.use(1):
    capsys.readouterr()
    interrupted.run(workdir, **options)
  assert "Continuing seed 0 in phase 1." in capsys.readouterr().out
  assert (workdir / "results.json").exists()
  assert len(list(models.iterdir())) == 1


@pytest.mark.slow
def test_programs_for_eight_accelerators(unchecked):
  for count in (8, 1):
    with mesh.use(count):
      for program in programs.some():
        exported = programs.export(program, ("tpu", "cuda"))
        assert exported.nr_devices == count, program.name
