"""Whether exemplars fit into memory, said before they are learned."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from experiments import plan
from experiments.settings import Settings, build
from mnemonics_jax import bilevel
from mnemonics_jax.data import Dataset

CONFIG, STREAM = build(
  Settings(
    "tiny", "test", net="resnet8", memory="per_class:4", base_classes=4,
    phases=2, scope="all", recipe="paper",
  ),
  tiny.dataset(),
)  # fmt: skip


@pytest.mark.slow
def test_the_quick_estimate_is_near_the_compiled_one():
  level = plan.exemplar_level(CONFIG)
  config = dataclasses.replace(level.config, inner_steps=3, augment=None)
  shape = jax.ShapeDtypeStruct
  rows = lambda n: bilevel.Exemplars(
    shape((n, 8, 8, 3), jnp.float32), shape((n,), jnp.int32)
  )
  variables = jax.eval_shape(CONFIG.model.init, jax.random.key(0))
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
  fixed, one = plan.level_bytes(CONFIG)
  note = lambda config, classes: plan.memory_note(
    config, STREAM, limit=int(fixed + classes * one)
  )
  assert plan.memory_note(CONFIG, STREAM) is None
  assert note(CONFIG, 4.1) is None
  assert "4 classes" in note(CONFIG, 2.5)
  assert "--exemplar_chunk=2 should fit" in note(CONFIG, 2.5)
  # Heeding it is enough.
  chunked = dataclasses.replace(CONFIG, exemplar_chunk=2)
  assert note(chunked, 2.5) is None
  assert "smaller --memory" in note(CONFIG, 0.5)


def test_devices_share_all_but_the_weights():
  (fixed, one), (fixed_of_4, one_of_4) = (
    plan.level_bytes(CONFIG, devices) for devices in (1, 4)
  )
  variables = jax.eval_shape(CONFIG.model.init, jax.random.key(0))
  weights = sum(4 * leaf.size for leaf in jax.tree.leaves(variables))
  assert one_of_4 == pytest.approx(one / 4)
  assert max(weights, fixed / 4) < fixed_of_4 < fixed


@pytest.mark.slow
def test_the_advice_agrees_with_what_was_compiled_for_imagenet():
  """benchmarks/README.md: on 16 GB, 5 classes fit and 10 just do not."""
  images = np.zeros((100, 224, 224, 3), np.uint8)
  imagenet = Dataset(
    name="folder",
    train_images=images,
    train_labels=np.arange(100, dtype=np.int32),
    test_images=images[:1],
    test_labels=np.zeros(1, np.int32),
    class_names=tuple(map(str, range(100))),
    mean=(0.5,) * 3,
    std=(0.25,) * 3,
  )
  config, stream = build(
    Settings(
      "folder", "test", net="resnet18", memory="per_class:1", base_classes=50,
      phases=5, scope="all", recipe="paper",
    ),
    imagenet,
  )  # fmt: skip
  config = dataclasses.replace(config, slots=20, class_size=1300)
  note = plan.memory_note(config, stream, limit=16 * 10**9)
  chunk = int(re.search(r"--exemplar_chunk=(\d+) should fit", note)[1])
  assert 5 <= chunk < 10
