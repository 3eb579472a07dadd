"""What phases cost, said before they run: steps, and memory."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import pytest
from support import tiny

from mnemonics_jax import bilevel, memory, methods, networks, phase
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.data.stream import StreamShape
from mnemonics_jax.exemplars.level import exemplar_level
from mnemonics_jax.phase import Schedule, cost

LEARNED, _ = tiny.setup(
  methods.LUCIR(),
  split=(4, 1, 1),
  width=16,
  memory=memory.PerClass(4),
  exemplars="mnemonics",
  bilevel=BilevelConfig.paper(),
)


def test_work_is_counted_in_training_steps():
  """12 images a class, 3 kept, batches of 16: by hand."""
  schedules = dict(
    base=Schedule(epochs=10, batch_size=16),
    train=Schedule(epochs=6, batch_size=16),
    balance=Schedule(epochs=3, batch_size=16),
  )
  plain, _ = tiny.setup(methods.LwF(), exemplars="random", **schedules)
  # Pools of 36, 12 + 9 and 24 + 12 images; later, a teacher adds a third.
  assert cost.phase_work(plain) == pytest.approx([30, 16, 24])
  tuned = dataclasses.replace(plain, finetune="all")
  # 9, 12 and 18 exemplars: 1, 1 and 2 steps an epoch.
  assert cost.phase_work(tuned) == pytest.approx([33, 19, 30])
  joint, _ = tiny.setup(methods.Joint(), exemplars="random", **schedules)
  # 36, 48 and 72 images: 3, 3 and 5 steps an epoch.
  assert cost.phase_work(joint) == pytest.approx([30, 18, 30])


def test_work_of_learned_exemplars_is_counted_too():
  recipe = BilevelConfig(
    scope="all", epochs=2, steps_per_epoch=5, inner_steps=10, batch_size=8
  )
  config, _ = tiny.setup(
    methods.LwF(), exemplars="mnemonics", adjust=True, bilevel=recipe,
    base=Schedule(epochs=1, batch_size=16),
    train=Schedule(epochs=1, batch_size=16),
  )  # fmt: skip
  # 2·5 meta steps on n exemplars pass 4·10·n + 8 images each.
  passes = lambda n: 10 * (40 * n + 8) / 16
  trained = [3, 4 / 3 * 2, 4 / 3 * 3]
  learned = [passes(9), passes(3), passes(6)]
  adjusted = [0, passes(9), passes(12)]
  parts = zip(trained, learned, adjusted, strict=True)
  found = [sum(p) for p in parts]
  assert cost.phase_work(config) == pytest.approx(found)
  # Split 3, 1, 2: copies begin with 12 images of one class, and 9 or 12 exemplars.
  copies = [4 / 3 * 3 * 2, 4 / 3 * 3 * 2, 0]
  config = dataclasses.replace(config, drift=3)
  assert cost.phase_work(config) == pytest.approx(
    [a + b for a, b in zip(found, copies, strict=True)]
  )


@pytest.mark.slow
def test_the_quick_estimate_is_near_the_compiled_one():
  level = exemplar_level(LEARNED)
  config = dataclasses.replace(level.config, inner_steps=3, augment=None)
  shape = jax.ShapeDtypeStruct
  rows = lambda n: bilevel.Exemplars(
    shape((n, 8, 8, 3), jnp.float32), shape((n,), jnp.int32)
  )
  variables = jax.eval_shape(LEARNED.model.init, jax.random.key(0))
  model = dict(apply_fn=level.apply_fn, config=config)
  # Differences, because small problems are mostly weights.
  quick = [bilevel.step_bytes(rows(n), variables, **model) for n in (64, 192)]
  compiled = [
    bilevel.estimate_memory(rows(n), variables, rows(8), **model).step
    for n in (64, 192)
  ]
  ratio = (quick[1] - quick[0]) / (compiled[1] - compiled[0])
  assert 0.7 < ratio < 1.4


def test_what_does_not_fit_is_said_with_what_does():
  fixed, one = cost.level_bytes(LEARNED)
  note = lambda config, classes: cost.memory_note(
    config, limit=int(fixed + classes * one)
  )
  assert cost.memory_note(LEARNED) is None
  assert note(LEARNED, 4.1) is None
  assert "4 classes" in note(LEARNED, 2.5)
  assert "`exemplar_chunk=2` should fit" in note(LEARNED, 2.5)
  # Heeding it is enough.
  chunked = dataclasses.replace(LEARNED, exemplar_chunk=2)
  assert note(chunked, 2.5) is None
  assert "smaller `memory`" in note(LEARNED, 0.5)
  # Chosen exemplars need none of it.
  chosen = dataclasses.replace(LEARNED, exemplars="herding")
  assert cost.memory_note(chosen, limit=1) is None


def test_devices_share_all_but_the_weights():
  (fixed, one), (fixed_of_4, one_of_4) = (
    cost.level_bytes(LEARNED, devices) for devices in (1, 4)
  )
  variables = jax.eval_shape(LEARNED.model.init, jax.random.key(0))
  weights = sum(4 * leaf.size for leaf in jax.tree.leaves(variables))
  assert one_of_4 == pytest.approx(one / 4)
  assert max(weights, fixed / 4) < fixed_of_4 < fixed


@pytest.mark.slow
def test_the_advice_agrees_with_what_was_compiled_for_imagenet():
  """benchmarks/README.md: on 16 GB, 5 classes fit and 10 just do not."""
  image_shape = (224, 224, 3)
  config = phase.Config(
    networks.resnet18(image_shape=image_shape),
    methods.LUCIR(),
    StreamShape((1300,) * 100, (50, 10, 10, 10, 10, 10), image_shape),
    memory=memory.PerClass(20),
    exemplars="mnemonics",
    bilevel=BilevelConfig.paper(),
  )
  note = cost.memory_note(config, limit=16 * 10**9)
  chunk = int(re.search(r"`exemplar_chunk=(\d+)` should fit", note)[1])
  assert 5 <= chunk < 10
