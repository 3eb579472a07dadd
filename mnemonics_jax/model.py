"""A network with its head: variables → features, scores."""

import dataclasses
from typing import NamedTuple

import jax
from jaxtyping import Array, Float

from mnemonics_jax.heads import Head
from mnemonics_jax.networks import Network
from mnemonics_jax.types import PyTree, Variables


class Outputs(NamedTuple):
  """One forward pass.

  Attributes:
    features: output of the network, input of the head.
    logits: scores before the softmax, for all classes of the run.
    cosines: logits without the cosine head's σ.
  """

  features: Float[Array, "n d"]
  logits: Float[Array, "n classes"]
  cosines: Float[Array, "n classes"]


@dataclasses.dataclass(frozen=True)
class Model:
  """A hashable description; all arrays live in `variables`.

  Attributes:
    network: images → features.
    head: features → scores.
    classes: number of classes of the whole run, seen or not.
  """

  network: Network
  head: Head
  classes: int

  def init(self, key: Array) -> Variables:
    network_key, head_key = jax.random.split(key)
    variables = self.network.init(network_key)
    head = self.head.init(head_key, self.network.feature_dim, self.classes)
    params = {"backbone": variables["params"], "head": head}
    return {"params": params, "batch_stats": variables["batch_stats"]}

  def features(
    self, variables: Variables, images: Float[Array, "n h w c"], train=False
  ) -> tuple[Float[Array, "n d"], PyTree]:
    """Features and the batch statistics after this batch."""
    backbone = variables | {"params": variables["params"]["backbone"]}
    return self.network.features(backbone, images, train)

  def apply(
    self, variables: Variables, images: Float[Array, "n h w c"], train=False
  ) -> tuple[Outputs, PyTree]:
    """Outputs and the batch statistics after this batch."""
    features, batch_stats = self.features(variables, images, train)
    return self.read_out(variables, features), batch_stats

  def read_out(
    self, variables: Variables, features: Float[Array, "n d"]
  ) -> Outputs:
    """What the head makes of features."""
    scores = self.head.scores(variables["params"]["head"], features)
    return Outputs(features, *scores)
