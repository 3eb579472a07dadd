"""What is known, asked about images: scores, probabilities, grades."""

import jax
from jaxtyping import Float, Int, UInt8
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import registry
from mnemonics_jax.errors import UserError
from mnemonics_jax.learner.known import Known, Scores
from mnemonics_jax.methods import Method
from mnemonics_jax.nn.model import Model
from mnemonics_jax.phase.evaluate import confusion, extract, nme_cosines

# Of the cosines to class means, which have no scale of their own.
_SHARPNESS = 10


def check_readout(readout: str) -> None:
  """Refuses a read-out that does not exist."""
  if readout not in registry.READOUTS:
    raise UserError(
      "readout",
      f"`readout={readout}` is not known",
      f"choose one of {', '.join(registry.READOUTS)}",
    )


def check_head(method: Method, known: Known) -> None:
  """Refuses what another kind of method has learned."""
  key, head = jax.random.key(0), method.head
  fresh = jax.eval_shape(
    lambda: method.begin_run({"params": {"head": head.init(key, 1, 1)}})
  )
  learned = known.state.variables
  if (
    fresh["params"]["head"].keys() != learned["params"]["head"].keys()
    or not fresh.keys() <= learned.keys()
  ):
    raise UserError(
      "method",
      f"`method={method.name}` has another head than the method that learned"
      " this",
      "use the learner that it was learned with",
    )


def read(
  method: Method, known: Known, images: UInt8[np.ndarray, "n h w c"]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n seen"]]:
  """Features and logits of images."""
  check_head(method, known)
  model = Model(known.network, method.head, len(known.state.memory.counts))
  variables = known.state.variables
  features, logits = extract(model, method, variables, images)
  return features, logits[:, : len(known.names)]


def scores(
  method: Method,
  known: Known,
  images: UInt8[np.ndarray, "n h w c"],
  readout: str,
) -> Float[np.ndarray, "n seen"]:
  """Of each class for each image: logits, or cosines to the class means."""
  check_readout(readout)
  features, logits = read(method, known, images)
  if readout == "head":
    return logits
  exemplars, labels = memory_lib.flat(known.state.memory)
  found, _ = read(method, known, exemplars)
  return nme_cosines(features, found, labels, len(known.names))


def probabilities(
  scores: Float[np.ndarray, "n seen"], readout: str
) -> Float[np.ndarray, "n seen"]:
  """The softmax of scores; cosines times 10.

  >>> logits = np.log([[1.0, 3.0]])
  >>> probabilities(logits, "head").round(2).tolist()
  [[0.25, 0.75]]
  """
  if readout == "nme":
    scores = _SHARPNESS * scores
  likely = np.exp(scores - scores.max(-1, keepdims=True))
  return likely / likely.sum(-1, keepdims=True)


def grade(
  known: Known, labels: Int[np.ndarray, " n"], guesses: Int[np.ndarray, " n"]
) -> Scores:
  """How well guesses fit the labels."""
  table = confusion(labels, guesses, len(known.names))
  counts = table.sum(1)
  by_class = {
    name: float(table[i, i] / counts[i])
    for i, name in enumerate(known.names)
    if counts[i]
  }
  return Scores(float((labels == guesses).mean()), by_class, table)
