"""The meta loop of a phase: padding, chunks, and continuing anywhere."""

import dataclasses

import jax
import numpy as np
import pytest
from support import journals, tiny

from mnemonics_jax import bilevel, methods, phase
from mnemonics_jax.phase import Stage, meta_loop
from mnemonics_jax.phase.evaluate import extract
from mnemonics_jax.phase.level import exemplar_level

METHOD = methods.LUCIR()
KEY = jax.random.key(5)


@pytest.fixture(scope="module")
def first():
  """Phase 0 of a tiny run: classes 0, 1 and 2, with 12 images each."""
  config, stream = tiny.setup(METHOD, exemplars="mnemonics", adjust=True)
  return phase.Phase(phase.begin_run(0, config), stream[0], config)


def _chosen(first, per_class=3):
  labels = first.data.labels
  rows = np.concatenate(
    [np.flatnonzero(labels == label)[:per_class] for label in range(3)]
  )
  return first.data.images[rows], labels[rows]


def _features(first):
  variables = first.state.variables
  features, _ = extract(
    first.config.model, METHOD, variables, first.data.images
  )
  return features, first.data.labels


def _learn(first, stage=Stage(), rows=9, valid_rows=36, **changes):
  config = dataclasses.replace(first.config, **changes)
  return meta_loop.in_chunks(
    dataclasses.replace(first, config=config),
    meta_loop.learn,
    KEY,
    *_chosen(first),
    first.state.variables,
    _features(first),
    rows=rows,
    valid_rows=valid_rows,
    stage=stage,
    epochs=config.bilevel.epochs,
  )


def _adjust(first, stage=Stage(), rows=9, per_class=3, **changes):
  config = dataclasses.replace(first.config, **changes)
  return meta_loop.in_chunks(
    dataclasses.replace(first, config=config),
    meta_loop.adjust,
    KEY,
    *_chosen(first, per_class),
    first.state.variables,
    rows=rows,
    stage=stage,
    epochs=config.adjust_parts * config.bilevel.epochs,
  )


def _assert_same(one, two):
  jax.tree.map(np.testing.assert_array_equal, one, two)


def test_learning_is_what_bilevel_does_without_padding(first):
  images, labels = _chosen(first)
  level = exemplar_level(first.config)
  expected = bilevel.optimize_exemplars(
    KEY,
    bilevel.Exemplars(bilevel.from_uint8(images), labels),
    first.state.variables,
    bilevel.Features(*_features(first)),
    active=first.classes.seen,
    **level._asdict(),
  )
  change = _learn(first)
  _assert_same(change.after, bilevel.to_uint8(expected.exemplars.images))
  _assert_same(change.before, images)
  for name, values in expected.history._asdict().items():
    np.testing.assert_allclose(
      getattr(change.history, name), values, rtol=1e-5, err_msg=name
    )
  assert (change.after != change.before).any()


@pytest.mark.parametrize("parts", [2, 3])
def test_adjusting_is_what_bilevel_does_with_as_many_parts(first, parts):
  images, labels = _chosen(first)
  expected = bilevel.adjust_exemplars(
    KEY,
    bilevel.Exemplars(bilevel.from_uint8(images), labels),
    first.state.variables,
    active=first.classes.seen,
    parts=parts,
    **exemplar_level(first.config)._asdict(),
  )
  change = _adjust(first, adjust_parts=parts)
  _assert_same(change.after, bilevel.to_uint8(expected.exemplars.images))
  assert len(change.history.loss) == parts * first.config.bilevel.epochs


def test_padding_of_exemplars_changes_nothing_but_rounding(first):
  """Augmentation draws by row, so that it would draw otherwise."""
  plain, padded = (
    _learn(first, rows=rows, augment_exemplars=False) for rows in (9, 17)
  )
  np.testing.assert_allclose(plain.history.loss, padded.history.loss, rtol=1e-4)
  moved = np.abs(plain.after.astype(int) - padded.after.astype(int))
  assert moved.max() <= 1 and (moved > 0).mean() < 0.01
  assert padded.after.shape == plain.after.shape


def test_padded_data_are_never_drawn(first):
  """With twice the rows a step still draws all that are real."""
  plain, padded = (
    _learn(first, valid_rows=rows, augment_exemplars=False) for rows in (36, 80)
  )
  np.testing.assert_allclose(plain.history.loss, padded.history.loss, rtol=1e-4)


def test_an_epoch_is_a_pass_over_the_data_of_this_phase(first):
  """36 images in batches of 16, however many rows the largest phase needs."""
  recipe = dataclasses.replace(
    tiny.RECIPE, steps_per_epoch=None, batch_size=16, epochs=1
  )
  steps = []

  class Journal(phase.Journal):
    def offer(self, entry, state):
      steps.append(int(state.state.step))

  for rows in (36, 80):
    _learn(first, Stage(journal=Journal()), valid_rows=rows, bilevel=recipe)
    assert steps[-1] == 3


def test_an_epoch_of_an_adjustment_is_a_pass_over_the_other_parts(first):
  """Nine exemplars in thirds: six others in batches of four, not of 30 rows."""
  recipe = dataclasses.replace(
    tiny.RECIPE, steps_per_epoch=None, batch_size=4, epochs=1
  )
  taken = []

  class Journal(phase.Journal):
    def offer(self, entry, state):
      taken.append([int(part.step) for part in state.state])

  stage = Stage(journal=Journal())
  _adjust(first, stage, rows=30, adjust_parts=3, bilevel=recipe)
  assert taken[-1] == [2, 2, 2]


def test_classes_are_split_in_order():
  labels = np.array([4, 4, 1, 7, 9, 9])
  split = lambda size: [
    group.tolist() for group in meta_loop.split_classes(labels, size)
  ]
  assert split(2) == [[1, 4], [7, 9]]
  assert split(3) == [[1, 4, 7], [9]]
  assert split(None) == split(4) == split(9) == [[1, 4, 7, 9]]


def test_a_chunk_is_learned_from_its_own_classes(first):
  """Each class alone is what learning the exemplars of one class gives."""
  told = []
  change = _learn(first, Stage(report=told.append), exemplar_chunk=1)
  places = [(step.epoch, step.epochs) for step in told]
  assert places == [(i, 6) for i in range(6)]
  images, labels = _chosen(first)
  features, data_labels = _features(first)
  histories = []
  for number in range(3):
    own, data = labels == number, data_labels == number
    alone, history, _ = meta_loop.learn(
      first,
      jax.random.fold_in(KEY, number),
      images[own],
      labels[own],
      first.state.variables,
      (features[data], data_labels[data]),
      rows=3,
      valid_rows=12,
      stage=Stage(),
      tell=lambda *_: None,
    )
    _assert_same(change.after[own], alone)
    histories.append(history)
  mean = np.mean([history.loss for history in histories], axis=0)
  np.testing.assert_array_equal(change.history.loss, mean)
  assert [step.metrics["loss"] for step in told] == pytest.approx(
    np.concatenate([history.loss for history in histories])
  )


def test_chunks_of_other_sizes_share_their_shapes(first):
  """Two classes, then one: the second chunk is padded to the first."""
  change = _learn(first, exemplar_chunk=2)
  moved = (change.after != change.before).reshape(3, -1).any(1)
  assert moved.all() and change.after.shape == change.before.shape


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("loop", [_learn, _adjust])
def test_the_meta_loop_continues_from_every_moment(first, loop, chunk):
  name, told, pieces = loop.__name__, [], []
  stage = Stage(name=name, report=told.append)
  whole = loop(first, stage, exemplar_chunk=chunk)
  again, journal = journals.in_pieces(
    lambda journal: loop(
      first,
      stage._replace(report=pieces.append, journal=journal),
      exemplar_chunk=chunk,
    )
  )
  _assert_same(again, whole)
  assert pieces == told
  # Two epochs of two steps; of each half, if they are two.
  steps = 4 if loop is _learn else 8
  entries = [name] if chunk is None else [f"{name}_0", f"{name}_1"]
  assert journal.offers == [e for e in entries for _ in range(steps)]
  assert list(journal.results) == entries


def test_diagnostics_say_how_far_stored_pixels_have_moved(first):
  change = _learn(first)
  told = change.diagnostics()
  moved = np.abs(change.after.astype(int) - change.before.astype(int))
  assert told["max_change"] == moved.max() <= 2
  assert told["mean_change"] == pytest.approx(moved.mean())
  assert told["loss"] == change.history.loss.tolist()
  assert len(told["displacement"]) == first.config.bilevel.epochs
