"""Whether exemplars fit into memory, said before they are learned."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import pytest
import tiny

from experiments import plan
from experiments.settings import Settings, build
from mnemonics_jax import bilevel

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
  assert plan.memory_note(CONFIG, STREAM) is None
  one = plan._exemplar_bytes(CONFIG, CONFIG.slots)
  assert plan.memory_note(CONFIG, STREAM, limit=int(4.1 * one)) is None
  note = plan.memory_note(CONFIG, STREAM, limit=int(2.5 * one))
  assert "4 classes" in note and "--exemplar_chunk=2 fits" in note
  # Heeding it is enough.
  chunked = dataclasses.replace(CONFIG, exemplar_chunk=2)
  assert plan.memory_note(chunked, STREAM, limit=int(2.5 * one)) is None
  note = plan.memory_note(CONFIG, STREAM, limit=one // 2)
  assert re.search("smaller --memory", note)
