"""What a model makes of images: features, logits, and its counts of test images.

The forward passes run on the device; the read-outs score their results on the host.
"""

import functools
from typing import NamedTuple

import jax
from jaxtyping import Float, Int
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.images import Images
from mnemonics_jax.memory import Memory
from mnemonics_jax.methods import Method
from mnemonics_jax.nn.model import Model, stream_blocks
from mnemonics_jax.nn.pixels import from_uint8
from mnemonics_jax.parallel import mesh
from mnemonics_jax.phase.context import Phase
from mnemonics_jax.readouts import READOUTS
from mnemonics_jax.types import Variables


@functools.partial(jax.jit, static_argnames=("model", "method"))
def _forward(variables, images, *, model, method):
  outputs, _ = model.apply(variables, from_uint8(images))
  logits = method.logits(variables, outputs)
  return mesh.replicate((outputs.features, logits))


@functools.partial(jax.jit, static_argnames=("model", "method"))
def _head(variables, features, *, model, method):
  outputs = model.read_out(variables, features)
  return mesh.replicate((method.logits(variables, outputs),))


def extract(
  model: Model,
  method: Method,
  variables: Variables,
  images: Images,
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n classes"]]:
  """Features and logits of all images, in evaluation mode."""
  compute = functools.partial(_forward, variables, model=model, method=method)
  features, logits = stream_blocks(compute, images)
  return features, logits


def extract_features(
  model: Model,
  method: Method,
  variables: Variables,
  images: Images,
) -> Float[np.ndarray, "n d"]:
  """The features of `extract` alone: logits of many classes take more room."""
  compute = functools.partial(_forward, variables, model=model, method=method)
  (features,) = stream_blocks(lambda block: compute(block)[:1], images)
  return features


# Images whose features are in memory together, where not all are needed at once.
TOGETHER = 2**15


def confusion(
  labels: Int[np.ndarray, " n"], predictions: Int[np.ndarray, " n"], seen: int
) -> Int[np.ndarray, "seen seen"]:
  """Counts [true class, predicted class]."""
  counts = np.bincount(labels * seen + predictions, minlength=seen * seen)
  return counts.reshape(seen, seen)


class Evaluation(NamedTuple):
  """What a model makes of the test images of the classes seen.

  Attributes:
    confusion: for each read-out the counts [true class, predicted class].
    features: of the test images.
    exemplar_features: of the memory.
  """

  confusion: dict[str, Int[np.ndarray, "seen seen"]]
  features: Float[np.ndarray, "n d"]
  exemplar_features: Float[np.ndarray, "m d"]


def evaluate(
  model: Model,
  method: Method,
  variables: Variables,
  test: tuple[Images, np.ndarray],
  exemplars: tuple[np.ndarray, np.ndarray],
  seen: int,
  same_backbone: Evaluation | None = None,
) -> Evaluation:
  """Every read-out over the test images of seen classes.

  Args:
    model: network and head.
    method: whose logits are read out.
    variables: Θ.
    test: images and labels.
    exemplars: images and labels of the memory.
    seen: number of classes seen.
    same_backbone: the evaluation of a model that differs only in its head, for the
      same images; their features are used again.
  """
  images, labels = test
  if same_backbone is None:
    features, logits = extract(model, method, variables, images)
    exemplar_features = extract_features(model, method, variables, exemplars[0])
  else:
    _, features, exemplar_features = same_backbone
    compute = functools.partial(_head, variables, model=model, method=method)
    (logits,) = stream_blocks(compute, features)
  known = features, logits, lambda: (exemplar_features, exemplars[1]), seen
  counts = {
    name: confusion(labels, readout().scores(*known).argmax(-1), seen)
    for name, readout in READOUTS.items()
  }
  return Evaluation(counts, features, exemplar_features)


def evaluate_phase(
  phase: Phase,
  variables: Variables,
  memory: Memory,
  before: Evaluation | None = None,
) -> Evaluation:
  """Every read-out at one moment of a phase.

  Args:
    phase: whose test images are read.
    variables: Θ.
    memory: as the phase will leave it.
    before: what was measured before the fine-tune, if there was one.
  """
  config, data = phase.config, phase.data
  return evaluate(
    config.model,
    config.method,
    variables,
    test=(data.test_images, data.test_labels),
    exemplars=memory_lib.flat(memory),
    seen=phase.classes_seen,
    same_backbone=before if config.finetune == "head" else None,
  )
