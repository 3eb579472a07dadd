"""The stages that make exemplars: chosen among the images, learned, adjusted."""

import functools
from typing import NamedTuple

from jaxtyping import Int, UInt8
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.images import Images, concatenate, read
from mnemonics_jax.memory import selection
from mnemonics_jax.phase import choice, holdout, meta_loop
from mnemonics_jax.phase.context import Phase
from mnemonics_jax.phase.evaluate import extract
from mnemonics_jax.phase.meta_loop import Change, in_chunks
from mnemonics_jax.phase.stage import Stage
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

  Those that are never trained on come first, as `holdout` wants them. Images are
  judged by what is left of them once they are kept.
  """
  config, data = phase.config, phase.data
  new = data.labels >= phase.classes_old  # The upper bound sees old data, too.
  images, labels = data.images[new], data.labels[new]
  inputs, features = images, np.zeros((len(labels), 0), np.float32)
  if config.chosen == "herding" or config.learned_on_features:
    features, _ = extract(config.model, config.method, variables, images)
  if config.learned_on_features:
    inputs = features
  kept, sizes = _as_kept(phase, variables, images, features)
  held = phase.held_out[new]
  free = np.flatnonzero(~held)
  apart = functools.partial(holdout.share, fraction=config.method.holdout)
  wider = choice.WIDER if config.exemplars == "selected" else 1
  picks = free[
    selection.select(
      phase.keys.numpy("select"),
      kept[free],
      labels[free],
      range(phase.classes_old, phase.classes_seen),
      strategy=config.chosen,
      allowance=wider * (phase.allowance - apart(phase.allowance)),
      toward=None if kept is features else features[free],
    )
  ]

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
        for rows in by_class
      ]
    )

  if config.exemplars == "selected":
    first = fitting(picks)
    counts = np.bincount(
      labels[first[~held[first]]], minlength=config.model.classes
    )
    best = choice.best_first(
      phase, variables, kept[picks], labels[picks], counts, (features, labels)
    )
    picks = picks[best]
  picks = fitting(picks)
  return Chosen(read(images, picks), labels[picks], inputs, labels)


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
      found.append(extract(config.model, config.method, variables, kept)[0])
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
  if config.learned_on_features:
    old, _ = extract(config.model, config.method, variables, old)
  return (
    concatenate([chosen.inputs, old]),
    np.concatenate([chosen.input_labels, old_labels]),
  )
