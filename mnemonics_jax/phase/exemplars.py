"""The stages that make exemplars: chosen among the images, learned, adjusted."""

import functools
from typing import NamedTuple

from jaxtyping import Float, Int, UInt8
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.images import Images, concatenate, read
from mnemonics_jax.memory import selection
from mnemonics_jax.phase import choice, draws, evaluate, level, meta_loop
from mnemonics_jax.phase.context import Phase, Stage
from mnemonics_jax.phase.evaluate import extract_features
from mnemonics_jax.phase.meta_loop import Change, in_chunks
from mnemonics_jax.types import Variables


class Chosen(NamedTuple):
  """Images of the new classes that become exemplars, and what chose them.

  Attributes:
    images: one after the other by class, as they were before they are kept.
    labels: their classes.
    inputs: all new images, or their features, to learn exemplars from.
    input_labels: their classes.
  """

  images: UInt8[np.ndarray, "n h w c"]
  labels: Int[np.ndarray, " n"]
  inputs: Images
  input_labels: Int[np.ndarray, " m"]


def choose(phase: Phase, variables: Variables) -> Chosen:
  """Exemplars of the new classes, as many as the memory allows for each.

  Those that are never trained on come first, as `draws.held_share` wants them. Images are
  judged by what is left of them once they are kept.
  """
  config, data = phase.config, phase.data
  new = data.labels >= phase.classes_old  # The upper bound sees old data, too.
  images, labels = data.images[new], data.labels[new]
  apart = functools.partial(draws.held_share, fraction=config.method.holdout)
  held = phase.held_out[new]
  allowance = phase.allowance - apart(phase.allowance)
  looked = _look(phase, variables, images, labels, held, allowance)
  picks, sizes = looked.picks, looked.sizes

  def fitting(picks):
    """Of each new class what it may keep, those that are held out first."""
    picks = np.concatenate([np.flatnonzero(held), picks])
    budget = phase.allowance, apart, phase.bytes_allowance
    by_class = (
      picks[labels[picks] == label]
      for label in range(phase.classes_old, phase.classes_seen)
    )
    return np.concatenate(
      [
        rows[memory_lib.staying(None, sizes[rows], *budget)]
        for rows in (rows[: phase.allowance] for rows in by_class)
      ]
    )

  if config.exemplars == "selected":
    first = fitting(picks)
    counts = np.bincount(
      labels[first[~held[first]]], minlength=config.model.classes
    )
    kept, valid = looked.kept[picks], (looked.features, labels)
    best = choice.best_first(
      phase, variables, kept, labels[picks], counts, valid
    )
    picks = picks[best]
  picks = fitting(picks)
  inputs = looked.features if level.learned_on_features(config) else images
  return Chosen(read(images, picks), labels[picks], inputs, labels)


class _Look(NamedTuple):
  """What the model makes of the new images.

  Attributes:
    picks: rows of those that come first, class after class.
    sizes: bytes that each takes when it is kept.
    features: of all of them if those are needed later, or of the last classes.
    kept: the same, of the images as they will be kept.
  """

  picks: Int[np.ndarray, " picks"]
  sizes: Int[np.ndarray, " n"]
  features: Float[np.ndarray, "m d"]
  kept: Float[np.ndarray, "m d"]


def _look(phase, variables, images, labels, held, allowance) -> _Look:
  """Looks at each image once, and at no more classes at a time than it must."""
  config, rng = phase.config, phase.keys.numpy("select")
  selected = config.exemplars == "selected"
  groups = [(range(phase.classes_old, phase.classes_seen), slice(None))]
  if not (selected or level.learned_on_features(config)):
    groups = list(_groups(labels, groups[0][0]))
  picks, sizes = [], np.zeros(len(labels), np.int64)
  features = kept = np.zeros((0, 0), np.float32)
  for classes, rows in groups:
    own = labels[rows]
    features = np.zeros((len(own), 0), np.float32)
    if config.chosen == "herding" or level.learned_on_features(config):
      features = extract_features(
        config.model, config.method, variables, images[rows]
      )
    kept, sizes[rows] = _as_kept(phase, variables, images[rows], features)
    free = np.flatnonzero(~held[rows])
    found = selection.select(
      rng,
      kept[free],
      own[free],
      classes,
      strategy=config.chosen,
      allowance=allowance * (choice.WIDER if selected else 1),
      toward=None if kept is features else features[free],
    )
    picks.append((rows.start or 0) + free[found])
  return _Look(np.concatenate(picks), sizes, features, kept)


def _groups(labels, classes):
  """Classes one after the other, some at a time, and the rows of each some."""
  if (np.diff(labels) < 0).any():
    yield classes, slice(None)
    return
  first, start = classes.start, 0
  for label in classes:
    stop = int(np.searchsorted(labels, label, side="right"))
    if stop - start >= evaluate.TOGETHER or label == classes[-1]:
      yield range(first, label + 1), slice(start, stop)
      first, start = label + 1, stop


# Images that are decoded again at a time.
_BLOCK = 4096


def _as_kept(phase, variables, images, features):
  """Features of images as they will be kept, and the bytes that each takes.

  Only herding wants to know the features; those of `images` are `features`.
  """
  config = phase.config
  if config.codec.exact:
    return features, np.full(len(images), np.prod(images.shape[1:]))
  found, sizes = [], []
  for start in range(0, len(images), _BLOCK):
    rows = np.arange(start, min(start + _BLOCK, len(images)))
    codes = config.codec.encode(read(images, rows))
    sizes.append(codes.sizes)
    if config.chosen == "herding":
      kept = config.codec.decode(codes, images.shape[1:])
      found.append(
        extract_features(config.model, config.method, variables, kept)
      )
  return np.concatenate(found) if found else features, np.concatenate(sizes)


def learn(
  phase: Phase, variables: Variables, chosen: Chosen, stage: Stage = Stage()
) -> Change:
  """Exemplars of the new classes, learned from the images chosen (Eq. 9)."""
  sizes, later = phase.config.sizes, phase.classes_old > 0
  valid = _validation(phase, variables, chosen)
  return in_chunks(
    phase,
    meta_loop.learn,
    phase.keys("exemplars"),
    memory_lib.round_trip(phase.config.codec, chosen.images),
    chosen.labels,
    variables,
    valid,
    rows=sizes.new_exemplars if later else len(chosen.labels),
    valid_rows=sizes.later_pool if later else len(valid[1]),
    stage=stage,
    epochs=phase.config.bilevel.epochs,
  )


def adjust(
  phase: Phase, variables: Variables, stage: Stage = Stage()
) -> Change:
  """Old exemplars, each part validated by the others (Eq. 10)."""
  images, labels = memory_lib.flat(phase.state.memory)
  return in_chunks(
    phase,
    meta_loop.adjust,
    phase.keys("adjust"),
    images,
    labels,
    variables,
    rows=phase.config.sizes.old_exemplars,
    stage=stage,
    epochs=phase.config.adjust_parts * phase.config.bilevel.epochs,
  )


def _validation(phase, variables, chosen):
  """What validates new exemplars: the new data, perhaps the old exemplars."""
  config = phase.config
  if config.validate_on == "new":
    return chosen.inputs, chosen.input_labels
  old, old_labels = memory_lib.flat(phase.state.memory)
  if level.learned_on_features(config):
    old = extract_features(config.model, config.method, variables, old)
  return (
    concatenate([chosen.inputs, old]),
    np.concatenate([chosen.input_labels, old_labels]),
  )
