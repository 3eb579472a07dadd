"""What a read-out is, and the first one: the network's own classifier.

The forward passes run on the device before a read-out is asked. A read-out is a
little NumPy on arrays whose sizes differ from phase to phase, so nothing is compiled
for them. To add one, write a class with `scores` in a file beside this one, and add
an entry to `registry.READOUTS`.
"""

import abc
from collections.abc import Callable
import dataclasses
from typing import ClassVar

from jaxtyping import Float, Int
import numpy as np

Exemplars = tuple[Float[np.ndarray, "m d"], Int[np.ndarray, " m"]]
"""Features of the exemplars in the memory, and their classes."""


@dataclasses.dataclass(frozen=True)
class Readout(abc.ABC):
  """Scores classes for images; the class with the highest score wins.

  Attributes:
    sharpness: what scores are multiplied by before the softmax that makes them
      probabilities.
  """

  sharpness: ClassVar[float] = 1.0

  @abc.abstractmethod
  def scores(
    self,
    features: Float[np.ndarray, "n d"],
    logits: Float[np.ndarray, "n classes"],
    exemplars: Callable[[], Exemplars],
    seen: int,
  ) -> Float[np.ndarray, "n seen"]:
    """A score for each image and class seen.

    Args:
      features: of the images.
      logits: of the images, for all classes of the run.
      exemplars: computes the features of the exemplars; called where needed.
      seen: number of classes seen, the first ones of all.
    """

  def probabilities(
    self, scores: Float[np.ndarray, "n seen"]
  ) -> Float[np.ndarray, "n seen"]:
    """The softmax of scores, sharpened."""
    scores = self.sharpness * scores
    likely = np.exp(scores - scores.max(-1, keepdims=True))
    return likely / likely.sum(-1, keepdims=True)


@dataclasses.dataclass(frozen=True)
class Head(Readout):
  """The logits of the network's own classifier."""

  def scores(self, features, logits, exemplars, seen):
    """The logits of the classes seen."""
    return logits[:, :seen]
