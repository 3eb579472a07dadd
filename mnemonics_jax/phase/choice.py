"""Exemplars that are chosen by a learned score: candidates, best first."""

import dataclasses

from jaxtyping import Float, Int
import numpy as np

from mnemonics_jax import bilevel
from mnemonics_jax.parallel import mesh
from mnemonics_jax.phase.context import Phase
from mnemonics_jax.phase.level import Level
from mnemonics_jax.types import Variables

# Candidates for each exemplar.
WIDER = 3


def best_first(
  phase: Phase,
  variables: Variables,
  features: Float[np.ndarray, "n d"],
  labels: Int[np.ndarray, " n"],
  counts: Int[np.ndarray, " classes"],
  valid: tuple[Float[np.ndarray, "m d"], Int[np.ndarray, " m"]],
) -> Int[np.ndarray, " n"]:
  """The order in which candidates are chosen, class after class.

  Args:
    phase: whose recipe tells how long scores are learned.
    variables: Θ_i, whose head gives σ.
    features: of the candidates, of each class in the order of herding.
    labels: their classes.
    counts: how many of each class will be chosen.
    valid: features and labels of the new data.
  """
  config, later = phase.config, phase.classes_old > 0
  recipe = dataclasses.replace(config.bilevel, scope="head", batch_size=None)
  level = Level.of(recipe, config.model, config.method, config.augment)
  rank = np.arange(len(labels)) - np.searchsorted(labels, labels)
  start = -rank / np.maximum(counts[labels], 1)
  sizes = config.sizes
  rows = WIDER * sizes.new_exemplars if later else len(labels)
  valid_rows = sizes.later_pool if later else len(valid[1])
  found = bilevel.learn_choice(
    phase.keys("exemplars"),
    _padded(features, labels, rows),
    _pad(start.astype(np.float32), rows),
    mesh.put_replicated(counts.astype(np.int32)),
    variables["params"]["head"],
    _padded(*valid, valid_rows),
    config=level.config,
    active=phase.classes.seen,
  )
  scores = np.asarray(found.scores)[: len(labels)]
  return np.lexsort((-scores, labels))


def _padded(features, labels, rows):
  real = np.arange(rows) < len(labels)
  return bilevel.Features(
    _pad(features, rows), _pad(labels, rows), mesh.put_replicated(real)
  )


def _pad(array, rows):
  padding = [(0, rows - len(array))] + [(0, 0)] * (array.ndim - 1)
  return mesh.put_replicated(np.pad(array, padding))
