"""Sizes against numbers worked out by hand; refusals that name the field."""

import dataclasses

import pytest
from support import tiny

from mnemonics_jax import UserError, memory, methods, networks, phase
from mnemonics_jax.data.stream import StreamShape
from mnemonics_jax.phase import Sizes

NETWORK = networks.resnet8(width=4, image_shape=(8, 8, 3))
# Six classes of different sizes, three of them in phase 0.
SHAPE = StreamShape((10, 12, 11, 20, 9, 8), (3, 1, 2), (8, 8, 3))


def _config(policy, shape=SHAPE, method=methods.LwF(), **options):
  return phase.Config(NETWORK, method, shape, memory=policy, **options)


def test_sizes_with_a_number_of_exemplars_for_each_class():
  assert _config(memory.PerClass(3)).sizes == Sizes(
    pool=33,  # Phase 0: 10 + 12 + 11. Then 20 + 3·3 = 29, and 9 + 8 + 4·3 = 29.
    later_pool=29,
    class_images=20,
    class_exemplars=3,
    new_exemplars=6,  # Two classes in phase 2.
    old_exemplars=12,  # Four classes before phase 2.
  )


def test_sizes_with_a_budget_for_all_classes():
  """13 images: 4 for each of 3 classes, 3 for each of 4, 2 for each of 6."""
  assert _config(memory.Total(13)).sizes == Sizes(
    pool=33,  # Later 20 + 3·4 = 32, and 17 + 4·3 = 29.
    later_pool=32,
    class_images=20,
    class_exemplars=4,
    new_exemplars=4,  # One class of 3 in phase 1, two classes of 2 in phase 2.
    old_exemplars=12,
  )


def test_sizes_of_the_upper_bound_and_of_a_single_phase():
  joint = _config(
    memory.PerClass(3), SHAPE._replace(joint=True), methods.Joint()
  )
  assert joint.sizes.pool == 70
  alone = SHAPE._replace(classes_per_phase=(6,))
  sizes = _config(memory.PerClass(3), alone).sizes
  assert sizes == Sizes(70, 0, 20, 3, 0, 0)


def test_no_phase_exceeds_the_sizes():
  """In a run with a shrinking memory, as the phases really see it."""
  config, stream = tiny.setup(methods.LwF(), memory=memory.Total(14))
  state = phase.begin_run(0, config)
  assert config.sizes.class_exemplars == 4
  pools, old = [], []
  for data in stream:
    old.append(int(state.memory.counts.sum()))
    pools.append(len(data.labels) + old[-1])
    untrained = lambda phase, _: phase.state.variables
    state, _ = phase.run_phase(state, data, config, train=untrained)
  assert max(pools) == config.sizes.pool
  assert max(pools[1:]) == config.sizes.later_pool
  assert max(old) == config.sizes.old_exemplars


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("exemplars", "magic"),
    ("init_exemplars", "mnemonics"),
    ("validate_on", "old"),
    ("transfer", "in"),
    ("finetune", "everything"),
  ],
)
def test_a_choice_nobody_knows_is_refused_by_name(field, value):
  with pytest.raises(UserError, match=rf"`{field}={value}`.*choose") as refused:
    _config(memory.PerClass(3), **{field: value})
  assert refused.value.field == field


def test_what_does_not_fit_the_stream_is_refused_by_name():
  wide = networks.resnet8(width=4, image_shape=(32, 32, 3))
  cases = {
    "method": lambda: _config(memory.PerClass(3), method=methods.Joint()),
    "network": lambda: phase.Config(wide, methods.LwF(), SHAPE),
    "memory": lambda: _config(memory.PerClass(9)),
  }
  for field, make in cases.items():
    with pytest.raises(UserError) as refused:
      make()
    assert refused.value.field == field
  with pytest.raises(UserError, match=r"8 training images.*per_class:8"):
    cases["memory"]()


@pytest.mark.parametrize(
  "policy, options, enough",
  [
    (memory.PerClass(1), dict(method=methods.BiC()), "per_class:2"),
    (memory.Total(11), dict(method=methods.BiC()), "total:12"),
    (memory.PerClass(1), dict(adjust=True), "per_class:2"),
    (memory.Total(17), dict(adjust=True, adjust_parts=3), "total:18"),
  ],
)
def test_a_memory_that_ends_with_too_few_of_a_class_is_refused(
  policy, options, enough
):
  with pytest.raises(UserError, match=f"`memory={policy}`.*{enough} or more"):
    _config(policy, **options)
  _config(memory.parse(enough), **options)
  _config(policy)


@pytest.mark.parametrize(
  "field, value, least",
  [
    ("adjust_parts", 1, 2),  # Nothing would be left to validate by.
    ("adjust_parts", 2.5, 2),
    ("exemplar_chunk", 0, 1),
    ("exemplar_chunk", 1.5, 1),
    ("drift", -1, 0),
    ("drift", 0.5, 0),
  ],
)
def test_counts_are_whole_and_large_enough(unchecked, field, value, least):
  problem = f"`{field}={value}`.* a whole number.* {least}"
  with pytest.raises(UserError, match=problem) as refused:
    _config(memory.PerClass(3), **{field: value})
  assert refused.value.field == field


def test_equal_configurations_are_equal_keys():
  one, two = _config(memory.PerClass(3)), _config(memory.PerClass(3))
  assert one.sizes == two.sizes  # Computed once, and no part of the value.
  assert one == two and hash(one) == hash(two)
  assert dataclasses.replace(one, adjust=True) != two
  assert one.model.classes == 6


def test_a_memory_in_bytes_is_not_advised_in_images():
  for policy in (
    memory.PerClassBytes(200, images=1),
    memory.TotalBytes(900, 6),
  ):
    with pytest.raises(UserError, match="use more bytes or another `codec`"):
      _config(policy, method=methods.BiC())
