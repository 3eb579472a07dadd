"""What every strategy for exemplars promises, for each future and codec.

A strategy is tested as soon as it has an entry in `registry.EXEMPLARS`. Its model is
never trained: two phases, of three classes and of one, make exemplars alone.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

from flax import linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import journals, tiny

from mnemonics_jax import exemplars, memory, methods, phase, registry
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.phase import evaluate

REACH = 3  # Grey levels that a learned pixel may move.
# A codec, its memory, and a method; BiC never trains on a part of the exemplars.
CODECS = {
  "raw": (memory.Raw(), memory.PerClass(4), methods.LUCIR()),
  "jpeg": (memory.Jpeg(90), memory.PerClassBytes(700), methods.BiC()),
}
FUTURES = {"now": {}, "drifted": dict(drift=1), "imitated": dict(imitate=True)}
ONCE = phase.Schedule(1, 0.05, (), batch_size=16)
UNTRAINED: Any = dict(train=lambda phase, _: phase.state.variables)


class Flat(linen.Module):
  """One layer of features that tell images apart."""

  @linen.compact
  def __call__(self, images, train):
    return linen.Dense(8)(images.reshape(len(images), -1) - 0.5)


class Ran(NamedTuple):
  """A run of two phases: the states before and after, and their results."""

  config: phase.Config
  stream: Any
  states: list[Any]
  results: list[Any]


def setup(name: str, codec: str = "raw", future: str = "now", **options):
  kept, policy, method = CODECS[codec]
  data = tiny.dataset(4, train=9)
  recipe = BilevelConfig(
    epochs=1, steps_per_epoch=2, inner_steps=1, max_change=REACH, outer_lr=0.1
  )
  fields: dict[str, Any] = dict(
    bilevel=recipe, base=ONCE, train=ONCE, exemplars=name, codec=kept,
    memory=memory.fit(policy, kept, data.train_images), adjust=True,
  )  # fmt: skip
  fields |= FUTURES[future] | options
  config, stream = tiny.setup(method, split=(3, 1), data=data, **fields)
  network = Network(Flat(), data.image_shape)
  return dataclasses.replace(config, network=network), stream


def run(config, stream, **options) -> Ran:
  states, results = [phase.begin_run(0, config)], []
  for data in stream:
    state, result = phase.run_phase(
      states[-1], data, config, **UNTRAINED, **options
    )
    states.append(state)
    results.append(result)
  return Ran(config, stream, states, results)


@functools.cache
def ran(name: str, codec: str, future: str) -> Ran:
  """Runs a strategy once, for all tests."""
  return run(*setup(name, codec, future))


@functools.cache
def learns(name: str) -> bool:
  """Whether a strategy changes the images that it chooses."""
  return "exemplars" in ran(name, "raw", "now").results[0].diagnostics


every_strategy = pytest.mark.parametrize("name", [*registry.EXEMPLARS])
every_codec = pytest.mark.parametrize("codec", CODECS)
every_future = pytest.mark.parametrize("future", FUTURES)


def fitting(name, future):
  if future != "now" and not learns(name):
    pytest.skip("what is not learned has no future")


@every_strategy
@every_codec
@every_future
def test_exemplars_are_images_of_their_class_or_learned_from_such(
  name, codec, future
):
  """Without a change, or within `max_change` of the image that learning began at."""
  fitting(name, future)
  _, stream, states, results = ran(name, codec, future)
  kept = CODECS[codec][0]
  for data, before, after, result in zip(
    stream, states[:-1], states[1:], results, strict=True
  ):
    for label in range(before.classes_seen, after.classes_seen):
      own = memory.round_trip(kept, data.images[data.labels == label])
      found = kept.decode(after.memory.of_class(label), own.shape[1:])
      if learns(name):
        began, ended, labels = result.changed["exemplars"]
        began, ended = began[labels == label], ended[labels == label]
        rows = {image.tobytes(): row for row, image in enumerate(ended)}
        began = began[[rows[image.tobytes()] for image in found]]
        moved = np.abs(found.astype(int) - began)
        assert codec != "raw" or 0 < moved.max() <= REACH
        found = began
      picked = [image.tobytes() for image in found]
      assert {image.tobytes() for image in own} >= {*picked}
      assert len({*picked}) == len(picked)


@every_strategy
@every_codec
@every_future
def test_a_class_keeps_as_many_as_its_budget_allows(name, codec, future):
  fitting(name, future)
  config, _, states, results = ran(name, codec, future)
  for state, result in zip(states[1:], results, strict=True):
    kept, most = state.memory, config.memory.bytes_allowance(4)
    assert (kept.counts[: state.classes_seen] > 0).all()
    assert not kept.counts[state.classes_seen :].any()
    assert result.memory_images == kept.counts.sum()
    if codec == "raw":
      assert result.memory_bytes == kept.counts.sum() * 8 * 8 * 3
    for label in range(state.classes_seen):
      sizes = kept.of_class(label).sizes
      if most is None:
        assert len(sizes) == 4
      else:
        assert sizes.sum() <= most
        # Learning changes sizes; otherwise one more would not fit.
        assert learns(name) or most - sizes.sum() < sizes.max() + 40


@every_strategy
def test_a_shrinking_memory_keeps_the_best(name):
  """Of a strategy that orders them; the order of the others is chance."""
  config, stream = setup(name, memory=memory.Total(13), adjust=False)
  _, _, states, _ = run(config, stream)
  ordered = exemplars.strategy(config).ordered
  before, after = (state.memory for state in states[1:])
  assert before.counts.tolist() == [4, 4, 4, 0]
  assert after.counts.tolist() == [3, 3, 3, 3]
  same = []
  for label in range(3):
    then, now = (
      memory.Raw().decode(m.of_class(label), (8, 8, 3)) for m in (before, after)
    )
    assert {x.tobytes() for x in now} <= {x.tobytes() for x in then}
    same.append(np.array_equal(now, then[:3]))
  assert all(same) == ordered


@every_strategy
@every_codec
def test_images_are_judged_as_if_all_were_looked_at_together(
  name, codec, monkeypatch
):
  config, stream = setup(name, codec)
  now = phase.Phase(phase.begin_run(0, config), stream[0], config)
  choose = lambda: exemplars.strategy(config).choose(now, now.state.variables)
  whole = choose()
  monkeypatch.setattr(evaluate, "TOGETHER", 10)
  some = choose()
  np.testing.assert_array_equal(some.images, whole.images)
  np.testing.assert_array_equal(some.labels, whole.labels)


@every_strategy
@every_codec
@every_future
def test_a_phase_continues_to_the_bit(name, codec, future):
  """From every moment at which it can be interrupted, a few classes at a time."""
  fitting(name, future)
  config, stream = setup(name, codec, future, exemplar_chunk=2)
  whole = run(config, stream)
  for number, data in enumerate(stream):
    begin = whole.states[number]
    (state, result), _ = journals.in_pieces(
      lambda journal, begin=begin, data=data: phase.run_phase(
        begin, data, config, journal=journal, **UNTRAINED
      )
    )
    expected = whole.states[number + 1]
    assert state.memory == expected.memory
    jax.tree.map(
      np.testing.assert_array_equal, state.variables, expected.variables
    )
    assert result.diagnostics == whole.results[number].diagnostics


@every_strategy
def test_it_is_a_value_and_its_work_can_be_estimated(name):
  config, _ = setup(name)
  strategy = exemplars.strategy(config)
  assert strategy == exemplars.strategy(config)
  for number in range(2):
    work = strategy.work(config, number)
    assert jnp.isfinite(work) and (work > 0) == learns(name)
