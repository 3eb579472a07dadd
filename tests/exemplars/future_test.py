"""A simulated next phase: what it is made of, and exemplars that are learned for it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import tiny

from mnemonics_jax import UserError, memory, methods, phase
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.exemplars import Drifted, Imitated, future
from mnemonics_jax.exemplars.future import IMITATED, imitated_level
from mnemonics_jax.phase.sgd import own_logits
from mnemonics_jax.types import Exemplars

UNTRAINED = dict(train=lambda phase, _: phase.state.variables)
SHORT = phase.Schedule(epochs=1, learning_rate=0.05, batch_size=16)


def _phases(method=methods.LUCIR(), **options):
  """All phases of a tiny run whose model is never trained."""
  config, stream = tiny.setup(method, base=SHORT, train=SHORT, **options)
  state, found = phase.begin_run(0, config), []
  for data in stream:
    found.append(phase.Phase(state, data, config))
    state, _ = phase.run_phase(state, data, config, **UNTRAINED)
  return found


def _exemplars(now):
  labels = now.data.labels
  rows = np.concatenate(
    [np.flatnonzero(labels == label)[:3] for label in np.unique(labels)]
  )
  return now.data.images[rows], labels[rows]


def test_rotated_images_are_the_next_classes():
  first, *_ = _phases()
  kept = memory.store(first.state.memory, *_exemplars(first))
  follow = future.next_phase(first, first.state.variables, kept, classes=2)
  assert (follow.classes_old, follow.classes_seen) == (3, 5)
  assert follow.state.phase == 1 and follow.incremental
  data = first.data
  for label in (3, 4):
    expected = np.rot90(data.images[data.labels == label - 3], axes=(1, 2))
    found = follow.data.images[follow.data.labels == label]
    np.testing.assert_array_equal(found, expected)
  assert set(follow.data.labels.tolist()) == {3, 4}


def test_there_are_as_many_as_there_is_room_for():
  first, second, last = _phases()
  nothing = first.state.memory
  classes = lambda now, n: (
    future.next_phase(now, now.state.variables, nothing, n).data.new_classes
  )
  assert classes(first, 9) == 3  # Of six; the phase has brought three.
  assert classes(second, 9) == 1
  assert classes(last, 9) == 0  # The head is full.


def test_what_judges_is_another_next_phase():
  """Other classes, by another angle, than those exemplars are learned for."""
  first, *_ = _phases()
  nothing, data = first.state.memory, first.data
  follow = future.next_phase(
    first, first.state.variables, nothing, classes=2, turns=2, last=True
  )
  for label in (3, 4):
    own = data.images[data.labels == label - 2]
    found = follow.data.images[follow.data.labels == label]
    np.testing.assert_array_equal(found, own[:, ::-1, ::-1])


def test_wide_images_are_turned_upside_down():
  images = np.arange(12, dtype=np.uint8).reshape(1, 2, 6, 1)
  turned = future._rotated(images, turns=1)
  assert turned.ravel().tolist() == list(range(11, -1, -1))


def test_copies_drift_each_in_its_own_way():
  first, *_, last = _phases()
  theta = first.state.variables
  found = Drifted(2).drifted(first, theta, *_exemplars(first))
  kernel = lambda tree: tree["params"]["backbone"]["Conv_0"]["kernel"]
  stacked = np.asarray(kernel(found))
  assert stacked.shape == (3, *kernel(theta).shape)
  np.testing.assert_array_equal(stacked[0], kernel(theta))
  assert (stacked[1] != stacked[0]).any() and (stacked[1] != stacked[2]).any()
  again = Drifted(2).drifted(first, theta, *_exemplars(first))
  np.testing.assert_array_equal(kernel(again), stacked)
  alone = Drifted(2).drifted(last, last.state.variables, *_exemplars(last))
  assert len(kernel(alone)) == 1  # Nothing will follow.


def test_a_base_level_is_the_training_of_the_next_phase():
  """Its loss is the method's, with Θ as the teacher, on statistics of the batch and
  at the rate of a phase; padding does not count."""
  recipe = dataclasses.replace(tiny.RECIPE, inner_steps=4)
  _, second, last = _phases(bilevel=recipe)
  images, labels = _exemplars(second)
  found = Imitated().begin(second, second.state.variables, images, labels)
  pixels, classes = found.more["inner_data"]
  assert pixels.shape == (4, 64, 8, 8, 3) and classes.shape == (4, 64)
  # Half of a step are rotated images of class 3, half old exemplars.
  assert (np.asarray(classes[:, :32]) == 4).all()
  assert set(np.unique(classes[:, 32:]).tolist()) == {0, 1, 2}
  assert found.active.tolist() == [True] * 5 + [False]
  config = second.config
  recipe = imitated_level(config).config
  assert (recipe.inner_lr, recipe.batch_norm) == (0.05, "batch")
  loss = recipe.inner_loss
  batch = Exemplars(pixels[0], classes[0], jnp.ones(64, bool))
  value = loss(found.variables, batch)
  beside = found.variables[IMITATED]
  student, _ = config.model.apply(found.variables, pixels[0], train=True)
  student = own_logits(config.method, found.variables, student)
  before = second.state.variables
  teacher, _ = config.model.apply(before, pixels[0])
  teacher = own_logits(config.method, before, teacher)
  old = jnp.arange(6) < 4
  expected, _ = config.method.loss(
    student, teacher, classes[0], methods.Classes(old, jnp.arange(6) == 4)
  )
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  assert jax.tree.structure(beside["teacher"]) == jax.tree.structure(
    second.state.variables
  )
  # LUCIR would hold the rows of old classes.
  head = jax.grad(loss, allow_int=True)(found.variables, batch)["params"][
    "head"
  ]
  moved = np.abs(head["weight"]).sum(axis=1) > 0
  assert moved.tolist() == [False] * 4 + [True, False]
  # Rows of padding become copies of real ones: here all of one image.
  one = batch._replace(mask=jnp.arange(64) == 5)
  same = Exemplars(
    jnp.repeat(pixels[0, 5:6], 64, 0),
    jnp.repeat(classes[0, 5:6], 64),
    batch.mask,
  )
  np.testing.assert_allclose(
    loss(found.variables, one), loss(found.variables, same), rtol=1e-4
  )
  # Nothing follows the last phase: its exemplars are learned for the model as it is.
  alone = Imitated().begin(last, last.state.variables, *_exemplars(last))
  assert not alone.more and alone.level.config.inner_loss is None


def test_exemplars_learn_through_the_imitated_training():
  """It leaves a classifier, and its loss on real images falls."""
  schedule = phase.Schedule(epochs=40, milestones=(), batch_size=16)
  recipe = BilevelConfig(
    inner_steps=5, epochs=6, steps_per_epoch=5, outer_lr=0.02, max_change=None
  )
  config, stream = tiny.setup(
    methods.LUCIR(), base=schedule, train=schedule, exemplars="mnemonics",
    imitate=True, bilevel=recipe,
  )  # fmt: skip
  _, result = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  losses = result.diagnostics["exemplars"]["loss"]
  assert losses[0] < np.log(4)  # Four classes compete.
  assert losses[-1] < 0.97 * losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("form", [dict(drift=1), dict(imitate=True)])
def test_exemplars_are_learned_for_it_in_every_phase(form):
  recipe = dataclasses.replace(tiny.RECIPE, epochs=1)
  config, stream = tiny.setup(
    methods.LUCIR(), base=SHORT, train=SHORT, exemplars="mnemonics",
    bilevel=recipe, split=(2, 1, 1), **form,
  )  # fmt: skip
  state = phase.begin_run(0, config)
  for data in stream:
    state, result = phase.run_phase(state, data, config, **UNTRAINED)
    told = result.diagnostics["exemplars"]
    assert np.isfinite(told["loss"]).all()
    assert 0 < told["max_change"] <= 2
  assert state.memory.counts.tolist() == [3, 3, 3, 3]


def test_scales_and_shifts_are_learned_over_copies_that_drift_too():
  recipe = dataclasses.replace(tiny.RECIPE, epochs=1, scope="transfer")
  config, stream = tiny.setup(
    methods.LUCIR(), base=SHORT, train=SHORT, exemplars="mnemonics",
    bilevel=recipe, drift=1,
  )  # fmt: skip
  _, result = phase.run_phase(
    phase.begin_run(0, config), stream[0], config, **UNTRAINED
  )
  assert np.isfinite(result.diagnostics["exemplars"]["loss"]).all()


def test_both_at_once_are_refused():
  for wrong in (dict(drift=-1), dict(drift=1, imitate=True)):
    with pytest.raises(UserError, match="`drift="):
      tiny.setup(methods.LUCIR(), **wrong)
