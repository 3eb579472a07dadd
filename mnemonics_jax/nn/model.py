"""A network with its head: variables → features, scores."""

import dataclasses
from typing import NamedTuple

import jax
from jaxtyping import Array, Float

from mnemonics_jax.nn.heads import Head
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.types import PyTree, Variables


class Outputs(NamedTuple):
  """One forward pass.

  >>> import jax.numpy as jnp
  >>> from mnemonics_jax.nn import heads, networks
  >>> model = Model(networks.resnet8(), heads.LinearHead(), classes=2)
  >>> head = {"weight": jnp.array([[1.0, 0.0], [0.0, 2.0]]), "bias": jnp.ones(2)}
  >>> variables = {"params": {"head": head}}
  >>> model.read_out(variables, jnp.array([[3.0, 4.0]])).logits.tolist()
  [[4.0, 9.0]]

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

  >>> from mnemonics_jax.nn import heads, networks
  >>> network = networks.resnet8(width=4, image_shape=(8, 8, 3))
  >>> model = Model(network, heads.CosineHead(), classes=10)
  >>> variables = model.init(jax.random.key(0))
  >>> images = jax.numpy.zeros((2, 8, 8, 3))
  >>> apply = jax.jit(model.apply, static_argnames="train")
  >>> outputs, batch_stats = apply(variables, images, train=True)
  >>> outputs.features.shape, outputs.logits.shape
  ((2, 16), (2, 10))

  Attributes:
    network: images → features.
    head: features → scores.
    classes: number of classes of the whole run, seen or not.
  """

  network: Network
  head: Head
  classes: int

  def init(self, key: Array) -> Variables:
    """Random `params` of backbone and head, and `batch_stats`."""
    network_key, head_key = jax.random.split(key)
    variables = self.network.init(network_key)
    head = self.head.init(head_key, self.network.feature_dim, self.classes)
    params = {"backbone": variables["params"], "head": head}
    return {"params": params, "batch_stats": variables.get("batch_stats", {})}

  def features(
    self,
    variables: Variables,
    images: Float[Array, "n h w c"],
    train: bool = False,
  ) -> tuple[Float[Array, "n d"], PyTree]:
    """Features and the batch statistics after this batch."""
    backbone = variables | {"params": variables["params"]["backbone"]}
    return self.network.features(backbone, images, train)

  def apply(
    self,
    variables: Variables,
    images: Float[Array, "n h w c"],
    train: bool = False,
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
