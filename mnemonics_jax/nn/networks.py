"""Networks that map images in [0, 1] to features, as pure functions.

The last block has no ReLU unless `last_relu` asks for it: a cosine head needs signed
features. A `transfer` collection in `variables` (see transfer.py) scales and shifts
the frozen convolutions.

To add a network, write a function that returns a `Network`, and add an entry to
`registry.NETWORKS`.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import inspect
import itertools
from typing import Any

import chex
from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mnemonics_jax import registry
from mnemonics_jax.nn.layers import BatchNorm, Conv
from mnemonics_jax.types import PyTree, Variables

CIFAR_MEAN = (0.5071, 0.4866, 0.4409)
CIFAR_STD = (0.2009, 0.1984, 0.2023)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Block(nn.Module):
  """Two 3×3 convolutions around a shortcut.

  Attributes:
    features: output channels.
    stride: of the first convolution.
    last: whether the block ends the network, and without a ReLU.
    norm: makes a normalisation.
  """

  features: int
  stride: int
  last: bool
  norm: Callable[..., nn.Module]

  @nn.compact
  def __call__(self, x):
    y = Conv(self.features, stride=self.stride)(x)
    y = nn.relu(self.norm()(y))
    y = Conv(self.features)(y)
    y = self.norm()(y)
    if x.shape != y.shape:
      x = Conv(self.features, size=1, stride=self.stride)(x)
      x = self.norm()(x)
    return x + y if self.last else nn.relu(x + y)


class ResNet(nn.Module):
  """Basic-block ResNet with global average pooling and no classifier.

  Attributes:
    blocks: number of blocks in each stage.
    widths: channels of each stage; the last are the features.
    mean: of each colour channel, subtracted from the images.
    std: of each colour channel, by which they are divided.
    imagenet_stem: whether it begins with a 7×7 convolution and pooling.
    dtype: of activations; parameters, statistics and features keep theirs.
    remat: whether the backward pass computes the inside of each block again
      instead of storing it.
    last_relu: whether the last block ends with a ReLU, as the others do.
  """

  blocks: tuple[int, ...]
  widths: tuple[int, ...]
  mean: tuple[float, ...]
  std: tuple[float, ...]
  imagenet_stem: bool = False
  dtype: str | None = None
  # It changes what is stored, not what is computed.
  remat: bool = dataclasses.field(default=False, metadata={"identity": False})
  last_relu: bool = False

  @nn.compact
  def __call__(
    self, images: Float[Array, "n h w c"], train: bool
  ) -> Float[Array, "n d"]:
    norm = functools.partial(
      BatchNorm, use_running_average=not train, momentum=0.9, epsilon=1e-5
    )
    block = nn.remat(Block) if self.remat else Block
    mean, std = (jnp.asarray(c, images.dtype) for c in (self.mean, self.std))
    x = ((images - mean) / std).astype(self.dtype or images.dtype)
    if self.imagenet_stem:
      x = nn.relu(norm()(Conv(self.widths[0], size=7, stride=2)(x)))
      # A border of zeros is never the largest of what a ReLU lets pass.
      x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
      x = nn.max_pool(x, (3, 3), (2, 2))
    else:
      x = nn.relu(norm()(Conv(self.widths[0])(x)))
    number = itertools.count()
    for i, (count, width) in enumerate(
      zip(self.blocks, self.widths, strict=True)
    ):
      for j in range(count):
        stride = 2 if i > 0 and j == 0 else 1
        last = i == len(self.blocks) - 1 and j == count - 1
        signed = last and not self.last_relu
        name = f"Block_{next(number)}"
        x = block(width, stride, signed, norm, name=name)(x)
    return x.astype(images.dtype).mean((1, 2))


@dataclasses.dataclass(frozen=True)
class Network:
  """A feature extractor as two pure functions.

  The module may be any linen module, with batch statistics or without. Its
  `features(images, train)` returns features, or `__call__` if it has no such method.
  Weight transfer only works for convolutions that are `layers.Conv`.

  Attributes:
    module: the linen module; without randomness of its own, such as dropout.
    image_shape: height, width and channels of its images.
  """

  module: nn.Module
  image_shape: tuple[int, int, int]

  @property
  def feature_dim(self) -> int:
    """Length of a feature vector."""
    return _feature_dim(self)

  def init(self, key: Array) -> Variables:
    """Random variables: `params`, and `batch_stats` if the module has them."""
    return _init(self, key)

  def features(
    self,
    variables: Variables,
    images: Float[Array, "n h w c"],
    train: bool = False,
  ) -> tuple[Float[Array, "n d"], PyTree]:
    """Features and the batch statistics after this batch."""
    chex.assert_shape(images, (None, *self.image_shape))
    options: Any = dict(train=train, method=_method(self))
    if not train:
      features: Any = self.module.apply(variables, images, **options)
      return features, variables.get("batch_stats", {})
    features, updates = self.module.apply(
      variables, images, mutable=["batch_stats"], **options
    )
    return features, updates.get("batch_stats", {})


@functools.partial(jax.jit, static_argnames="network")
def _init(network, key):
  return network.module.init(
    key, _example(network), train=False, method=_method(network)
  )


def _method(network):
  """The module's method that returns features, None for `__call__`."""
  # A field of that name, as in `Conv`, is no method.
  method = getattr(type(network.module), "features", None)
  return "features" if inspect.isfunction(method) else None


@functools.cache
def _feature_dim(network):
  """Found from shapes alone, so that a module of one's own need not say it."""
  features, _ = jax.eval_shape(
    lambda: network.module.init_with_output(
      jax.random.key(0),
      _example(network),
      train=False,
      method=_method(network),
    )
  )
  if getattr(features, "ndim", None) != 2:
    raise ValueError(
      "a network returns one array of features [n, d] and nothing else, not"
      f" {jax.tree.map(lambda x: x.shape, features)}; pool or reshape the rest."
    )
  return features.shape[-1]


def _example(network):
  return jnp.zeros((1, *network.image_shape), jnp.float32)


def _resnet(
  blocks, width, image_shape, mean, std, imagenet_stem=False, **options
):
  """Stages of that many blocks, each twice as wide as the one before."""
  channels = image_shape[-1]
  if len(mean) != channels or len(std) != channels:
    raise ValueError(
      f"images have {channels} channels, but mean and std have {len(mean)} and"
      f" {len(std)} values; give one per channel"
    )
  widths = tuple(width * 2**stage for stage in range(len(blocks)))
  module = ResNet(
    blocks, widths, tuple(mean), tuple(std), imagenet_stem, **options
  )
  return Network(module, tuple(image_shape))


def resnet32(
  *,
  width: int = 16,
  image_shape: Sequence[int] = (32, 32, 3),
  mean: Sequence[float] = CIFAR_MEAN,
  std: Sequence[float] = CIFAR_STD,
  **options: Any,
) -> Network:
  """ResNet-32 for CIFAR: 3 stages of 5 blocks, 64 features.

  Args:
    width: channels of the first stage.
    image_shape: height, width and channels.
    mean: of each colour channel.
    std: of each colour channel.
    **options: `dtype`, `remat` and `last_relu` of `ResNet`.
  """
  return _resnet((5, 5, 5), width, image_shape, mean, std, **options)


def resnet8(
  *,
  width: int = 16,
  image_shape: Sequence[int] = (32, 32, 3),
  mean: Sequence[float] = CIFAR_MEAN,
  std: Sequence[float] = CIFAR_STD,
  **options: Any,
) -> Network:
  """A fifth of ResNet-32's work: 3 stages of 1 block, 64 features.

  The arguments are those of `resnet32`.
  """
  return _resnet((1, 1, 1), width, image_shape, mean, std, **options)


def resnet18(
  *,
  width: int = 64,
  image_shape: Sequence[int] = (224, 224, 3),
  mean: Sequence[float] = IMAGENET_MEAN,
  std: Sequence[float] = IMAGENET_STD,
  **options: Any,
) -> Network:
  """ResNet-18 for ImageNet: 4 stages of 2 blocks, 512 features.

  The arguments are those of `resnet32`.
  """
  return _resnet((2, 2, 2, 2), width, image_shape, mean, std, True, **options)


NETWORKS: Mapping[str, Callable[..., Network]] = registry.Objects(
  registry.NETWORKS
)
