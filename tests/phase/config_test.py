"""Configurations, schedules and sizes against numbers worked out by hand."""

import dataclasses

import numpy as np
import pytest
from support import tiny

from mnemonics_jax import UserError, memory, methods, networks, phase
from mnemonics_jax.data.stream import StreamShape
from mnemonics_jax.memory import PerClass, Total
from mnemonics_jax.phase import Schedule, Sizes
from mnemonics_jax.phase.config import (
  OpenShape,
  derive,
  milestones_at,
  round_up,
)

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


# Learning rates and steps, against the paper and by hand.


def test_schedule_of_the_paper():
  schedule = Schedule()
  rates = [schedule.rate(epoch) for epoch in (0, 79, 80, 119, 120, 159)]
  np.testing.assert_allclose(rates, [0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
  assert (schedule.epochs, schedule.batch_size) == (160, 128)


def test_a_cosine_falls_to_zero():
  """Rates of the middles of epochs: cos² of a quarter circle in four parts."""
  schedule = Schedule(4, learning_rate=0.2, curve="cosine")
  rates = [schedule.rate(epoch) for epoch in range(4)]
  expected = 0.2 * np.cos(np.pi * np.array([1, 3, 5, 7]) / 16) ** 2
  np.testing.assert_allclose(rates, expected, rtol=1e-5)


def test_one_cycle_rises_for_a_third_and_falls_to_zero():
  schedule = Schedule(10, learning_rate=0.5, curve="one_cycle")
  rates = [schedule.rate(epoch) for epoch in range(10)]
  # From a 25th to the peak in three epochs: half of that after one and a half.
  np.testing.assert_allclose(rates[1], 0.5 * (1 + 1 / 25) / 2, rtol=1e-5)
  np.testing.assert_allclose(
    rates[6], 0.25, rtol=1e-3
  )  # Halfway from 3 to 10, at 6.5.
  assert max(rates) == rates[3] and rates[9] < 0.01
  for epochs in (1, 2, 3):  # Short ones, too.
    rate = Schedule(epochs, learning_rate=0.5, curve="one_cycle").rate(0)
    assert 0.2 < rate <= 0.5


def test_milestones_do_not_matter_to_a_curve():
  curved = Schedule(4, milestones=(1,), curve="cosine")
  assert curved.rate(2) == Schedule(4, milestones=(), curve="cosine").rate(2)


@pytest.mark.parametrize(
  ("images", "steps"), [(1, 1), (127, 1), (128, 1), (129, 2), (50_000, 391)]
)
def test_the_last_batch_of_an_epoch_is_a_step_too(images, steps):
  assert Schedule(batch_size=128).steps(images) == steps


@pytest.mark.parametrize(
  "wrong",
  [
    dict(epochs=-1),
    dict(epochs=1.5),
    dict(batch_size=0),
    dict(batch_size=2.5),
    dict(milestones=(80, -1)),
    dict(learning_rate=0.0),
    dict(learning_rate=float("nan")),
    dict(decay=0.0),
    dict(momentum=1.0),
    dict(curve="linear"),
    dict(weight_decay=-0.1),
  ],
)
def test_what_cannot_train_is_refused_by_its_name(unchecked, wrong):
  (name,) = wrong
  with pytest.raises(UserError, match=f"`{name}=") as refused:
    Schedule(**wrong)
  assert refused.value.field == name


@pytest.mark.parametrize(
  ("epochs", "milestones"),
  [(160, (80, 120)), (8, (4, 6)), (3, (1, 2)), (2, (1,)), (1, ())],
)
def test_short_schedules_begin_at_the_full_rate(epochs, milestones):
  """Milestones are distinct; those that come too late are left out."""
  assert milestones_at((0.5, 0.75), epochs) == milestones
  rates = [Schedule(epochs, 0.1, milestones).rate(e) for e in range(epochs)]
  assert rates[0] == 0.1
  steps = np.divide(rates[1:], rates[:-1])
  np.testing.assert_allclose(steps[steps < 0.99], 0.1)


def test_milestones_of_imagenet():
  assert milestones_at((1 / 3, 2 / 3), 90) == (30, 60)
  assert milestones_at((1 / 3, 2 / 3), 2) == (1,)


# Sizes of a learner's phases.

GREY = (8, 8, 1)


def test_rounding_wastes_at_most_a_half():
  sizes = [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]
  for count in range(1, 257):
    expected = next(size for size in sizes if size >= count)
    assert round_up(count) == expected
    assert count <= 8 or round_up(count) < 1.5 * count


def test_a_thousand_counts_have_few_sizes():
  assert len({round_up(count) for count in range(1, 1001)}) == 15


@pytest.mark.parametrize(
  ("policy", "exemplars", "new"),
  [
    (PerClass(10), 10, 24),  # 2 new classes of 10, rounded up.
    (PerClass(100), 40, 96),  # The largest class has 40: 80 at most.
    (Total(21), 3, 8),  # 21 for 7 classes: 6 new ones.
  ],
)
def test_of_one_phase(policy, exemplars, new):
  # Seven classes, two of them new with 70 images together; 50 old exemplars.
  shape = OpenShape((5, 2), 8, 70, 40, 50, GREY)
  sizes = derive(shape, policy)
  assert sizes.pool == sizes.later_pool == 128  # 70 + 50 are 120.
  assert sizes.class_images == 48
  assert sizes.class_exemplars == exemplars
  assert sizes.new_exemplars == new
  assert sizes.old_exemplars == 64


def test_phases_of_equal_sizes_share_them():
  sizes = lambda *phases: derive(
    OpenShape(phases, 16, 20, 20, 4 * sum(phases[:-1]), GREY), PerClass(4)
  )
  # 20 or 24 exemplars fit into 24 rows, with 20 images into 48.
  assert sizes(5, 1) == sizes(5, 1, 1)
  assert sizes(5, 1, 1) != sizes(5, 1, 1, 1)  # 28 do not.


def test_of_a_whole_run():
  shape = StreamShape((40, 30, 20, 10), (2, 1, 1), GREY)
  sizes = derive(shape, PerClass(5))
  assert sizes.pool == 70  # Phase 0; then 20 + 10, and 10 + 15.
  assert sizes.later_pool == 30
  assert sizes.class_images == 40
  assert sizes.new_exemplars == 5 and sizes.old_exemplars == 15


def test_an_imitated_phase_may_be_larger():
  shape = StreamShape((40, 30, 90, 10), (1, 2, 1), GREY)
  # Phase 1 has 120 + 5; after it come 30, its first, + 15. After phase 0, 40 + 5.
  assert derive(shape, PerClass(5), imitates=True).pool == 125
  shape = StreamShape((90, 10, 10, 10), (1, 1, 2), GREY)
  # Phase 0 has 90, and what follows it 90 + 5.
  assert derive(shape, PerClass(5), imitates=True).pool == 95
  assert derive(shape, PerClass(5)).pool == 90
  # A learner: 70 new images, 50 old exemplars and 2 · 10 new ones are 140.
  shape = OpenShape((5, 2), 8, 70, 40, 50, GREY)
  assert derive(shape, PerClass(10), imitates=True).pool == 192


def test_an_open_shape_asks_for_nothing_of_the_past():
  shape = OpenShape((5, 2), 8, 70, 40, 50, GREY)
  assert shape.smallest_class is None and not shape.joint
