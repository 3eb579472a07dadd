"""Exemplars: chosen among the images, learned, adjusted."""

import dataclasses

import jax
import numpy as np
import pytest
from support import tiny

from mnemonics_jax import bilevel, memory, methods, phase
from mnemonics_jax.memory import selection
from mnemonics_jax.phase import Stage, evaluate, exemplars
from mnemonics_jax.phase.evaluate import extract


def _phases(method=methods.LUCIR(), **options):
  """The first two phases of a tiny run whose model is never trained."""
  config, stream = tiny.setup(method, **options)
  untrained = lambda phase, _: phase.state.variables
  first = phase.begin_run(0, config)
  second, _ = phase.run_phase(first, stream[0], config, train=untrained)
  return (
    phase.Phase(first, stream[0], config),
    phase.Phase(second, stream[1], config),
  )


def _distance(before, after):
  """Grey levels by which stored pixels differ."""
  return np.abs(before.astype(int) - after.astype(int))


def test_herding_chooses_by_the_features_of_the_model():
  first, _ = _phases(exemplars="herding")
  variables, data = first.state.variables, first.data
  chosen = exemplars.choose(first, variables)
  features, _ = extract(
    first.config.model, first.config.method, variables, data.images
  )
  for label in range(3):
    own = data.labels == label
    picks = selection.herding(features[own], 3)
    np.testing.assert_array_equal(
      chosen.images[chosen.labels == label], data.images[own][picks]
    )


@pytest.mark.parametrize(
  "options, parts",
  [
    (dict(exemplars="herding"), [24, 12]),
    (dict(exemplars="random"), []),
    (dict(exemplars="mnemonics"), [36]),  # Learned from all features.
    (dict(exemplars="selected"), [36]),
  ],
)
def test_no_more_classes_are_looked_at_together_than_have_to_be(
  monkeypatch, options, parts
):
  """Three classes of 12; some of several are chosen as if all were there."""
  first, _ = _phases(**options)
  whole, looks = exemplars.choose(first, first.state.variables), []
  original = exemplars.extract_features
  monkeypatch.setattr(
    exemplars,
    "extract_features",
    lambda *args: looks.append(len(args[3])) or original(*args),
  )
  monkeypatch.setattr(evaluate, "TOGETHER", 13)
  some = exemplars.choose(first, first.state.variables)
  assert looks == parts
  np.testing.assert_array_equal(some.images, whole.images)
  np.testing.assert_array_equal(some.labels, whole.labels)


def test_classes_in_any_order_are_looked_at_together(monkeypatch):
  first, _ = _phases(exemplars="herding")
  data = first.data
  mixed = np.random.default_rng(0).permutation(len(data.labels))
  mixed = data._replace(images=data.images[mixed], labels=data.labels[mixed])
  monkeypatch.setattr(evaluate, "TOGETHER", 13)
  whole, other = (
    exemplars.choose(
      dataclasses.replace(first, data=some), first.state.variables
    )
    for some in (data, mixed)
  )
  np.testing.assert_array_equal(other.labels, whole.labels)
  np.testing.assert_array_equal(other.images, whole.images)


def test_random_choice_follows_the_phase_and_the_seed():
  first, second = _phases(exemplars="random")
  variables = first.state.variables
  one, two = (exemplars.choose(first, variables) for _ in range(2))
  np.testing.assert_array_equal(one.images, two.images)
  reseeded = first.state._replace(key=jax.random.key(9))
  other = exemplars.choose(
    dataclasses.replace(first, state=reseeded), variables
  )
  assert (other.images != one.images).any()
  assert exemplars.choose(second, variables).labels.tolist() == [3] * 3


def test_the_upper_bound_chooses_among_new_images_only():
  _, second = _phases(methods.Joint(), exemplars="random")
  assert set(second.data.labels.tolist()) == {0, 1, 2, 3}
  chosen = exemplars.choose(second, second.state.variables)
  assert set(chosen.labels.tolist()) == {3}
  assert set(chosen.input_labels.tolist()) == {3}


def test_a_budget_decides_how_many_are_chosen():
  first, second = _phases(memory=memory.Total(13), exemplars="random")
  for now, each in ((first, 4), (second, 3)):
    chosen = exemplars.choose(now, now.state.variables)
    assert np.bincount(chosen.labels)[-1] == each


@pytest.mark.parametrize(
  "scope, validate_on",
  [
    ("head", "all"),
    pytest.param("all", "all", marks=pytest.mark.slow),
    ("head", "new"),
  ],
)
def test_new_exemplars_are_validated_by_new_data_and_old_exemplars(
  monkeypatch, scope, validate_on
):
  recipe = dataclasses.replace(tiny.RECIPE, scope=scope)
  _, second = _phases(
    exemplars="mnemonics", bilevel=recipe, validate_on=validate_on
  )
  variables = second.state.variables
  chosen = exemplars.choose(second, variables)
  prepare, problems = bilevel.prepare, []

  def watched(*args, **options):
    problems.append(prepare(*args, **options))
    return problems[-1]

  monkeypatch.setattr(bilevel, "prepare", watched)
  exemplars.learn(second, variables, chosen)
  (problem,) = problems
  # Shapes are those of all later phases: 24 new and 12 old images at most.
  assert len(problem.valid.labels) == second.config.sizes.later_pool == 36
  rows = 21 if validate_on == "all" else 12
  assert problem.valid.mask.tolist() == [True] * rows + [False] * (36 - rows)
  labels = [3] * 12 + sorted([0, 1, 2] * 3)
  assert problem.valid.labels[:rows].tolist() == labels[:rows]
  assert problem.exemplars.mask.tolist() == [True] * 3 + [False] * 3
  old, _ = memory.flat(second.state.memory)
  images = np.concatenate([second.data.images, old])
  expected = images
  if scope == "head":
    model, method = second.config.model, second.config.method
    expected, _ = extract(model, method, variables, images)
  np.testing.assert_allclose(
    problem.valid[0][:rows], expected[:rows], rtol=1e-5
  )


@pytest.mark.parametrize(
  "name, scope",
  [
    ("lucir", "head"),
    pytest.param("bic", "transfer", marks=pytest.mark.slow),
    pytest.param("lucir", "all", marks=pytest.mark.slow),
    pytest.param("lwf", "head", marks=pytest.mark.slow),
  ],
)
def test_learned_exemplars_move_within_the_trust_region(name, scope):
  recipe = dataclasses.replace(tiny.RECIPE, scope=scope, max_change=2)
  method = methods.METHODS[name]()
  plain, stream = tiny.setup(method)
  config = dataclasses.replace(
    plain, exemplars="mnemonics", adjust=True, bilevel=recipe
  )
  # One phase: the same images, moved by at most two grey levels.
  before, _ = phase.run_phase(phase.begin_run(0, plain), stream[0], plain)
  after, result = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  change = _distance(before.memory.images, after.memory.images)
  assert change.any() and change.max() <= 2
  assert result.diagnostics["exemplars"]["max_change"] == change.max()
  # The next phase also moves the old ones, again by at most two.
  later, result = phase.run_phase(after, stream[1], config)
  moved = _distance(later.memory.images[:9], after.memory.images)
  assert moved.any() and moved.max() <= 2
  assert result.diagnostics["adjust"]["max_change"] == moved.max()
  np.testing.assert_array_equal(later.memory.counts, [3, 3, 3, 3, 0, 0])


def test_adjustment_works_for_chosen_exemplars_too():
  """Halves of the old ones validate each other; epochs are told of both."""
  told = []
  _, second = _phases(exemplars="random", adjust=True)
  stage = Stage(1, "adjust", told.append)
  change = exemplars.adjust(second, second.state.variables, stage)
  before, labels = memory.flat(second.state.memory)
  np.testing.assert_array_equal(change.before, before)
  np.testing.assert_array_equal(change.labels, labels)
  assert (_distance(before, change.after).reshape(9, -1).max(1) > 0).all()
  assert [(step.epoch, step.epochs) for step in told] == [
    (0, 4), (1, 4), (2, 4), (3, 4),
  ]  # fmt: skip


def test_exemplars_of_one_class_at_a_time():
  """Of new and of old classes, with epochs counted over all of them."""
  told = []
  options = dict(exemplars="mnemonics", adjust=True, exemplar_chunk=1)
  first, second = _phases(**options)
  variables = first.state.variables
  chosen = exemplars.choose(first, variables)
  stage = Stage(0, "exemplars", told.append)
  change = exemplars.learn(first, variables, chosen, stage)
  assert [(step.epoch, step.epochs) for step in told] == [
    (i, 6) for i in range(6)
  ]
  assert len(change.history.loss) == 2
  moved = exemplars.adjust(second, variables)
  for label in range(3):
    own = moved.labels == label
    assert (moved.after[own] != moved.before[own]).any()
