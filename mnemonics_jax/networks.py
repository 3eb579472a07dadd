"""ResNets that map images in [0, 1] to features (flax.linen, seen only here).

`features` is a pure function of `variables`:

  net = resnet32()
  variables = net.init(jax.random.key(0))
  features, batch_stats = net.features(variables, images, train=True)

The last block has no ReLU: features are signed, which a cosine head needs.
A `transfer` collection in `variables` (see transfer.py) scales and shifts the
frozen convolutions.
"""

from collections.abc import Callable
import dataclasses
import functools
import itertools
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mnemonics_jax.conv import conv2d
from mnemonics_jax.types import PyTree, Variables

CIFAR_MEAN = (0.5071, 0.4866, 0.4409)
CIFAR_STD = (0.2009, 0.1984, 0.2023)

_he_normal = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


class Conv(nn.Module):
  """A square convolution without bias, optionally under scale/shift transfer."""

  features: int
  size: int = 3
  stride: int = 1

  @nn.compact
  def __call__(self, x):
    shape = (self.size, self.size, x.shape[-1], self.features)
    kernel = self.param("kernel", _he_normal, shape)
    conv = lambda kernel: conv2d(x, kernel.astype(x.dtype), stride=self.stride)
    if not self.has_variable("transfer", "scale"):
      return conv(kernel)
    scale = self.get_variable("transfer", "scale")
    shift = self.get_variable("transfer", "shift")
    if scale.shape[2] == 1:
      # One scale per output channel commutes with the convolution; applied to
      # its output, training it needs no kernel gradient at all.
      y = conv(kernel) * scale[0, 0, 0] + shift
    else:
      y = conv(kernel * scale) + shift
    return y.astype(x.dtype)


class Block(nn.Module):
  """Two 3×3 convolutions around a shortcut."""

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

  With `dtype` activations have that type; parameters, statistics and features
  keep theirs. With `remat` the backward pass computes the inside of each block
  again instead of storing it.
  """

  blocks: tuple[int, ...]
  widths: tuple[int, ...]
  mean: tuple[float, ...]
  std: tuple[float, ...]
  imagenet_stem: bool = False
  dtype: str | None = None
  # Not in the name of a model: it changes what is stored, not what is computed.
  remat: bool = dataclasses.field(default=False, repr=False)

  @nn.compact
  def __call__(self, images, train: bool):
    norm = functools.partial(
      nn.BatchNorm,
      use_running_average=not train,
      momentum=0.9,
      epsilon=1e-5,
      dtype=self.dtype,
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
        name = f"Block_{next(number)}"
        x = block(width, stride, last, norm, name=name)(x)
    return x.astype(images.dtype).mean((1, 2))


@dataclasses.dataclass(frozen=True)
class Network:
  """A feature extractor as two pure functions.

  Attributes:
    module: the linen module.
    image_shape: height, width and channels of its images.
  """

  module: ResNet
  image_shape: tuple[int, int, int]

  @property
  def feature_dim(self) -> int:
    return self.module.widths[-1]

  def init(self, key: Array) -> Variables:
    """Random variables: `params` and `batch_stats`."""
    return _init(self, key)

  def features(
    self,
    variables: Variables,
    images: Float[Array, "n h w c"],
    train: bool = False,
  ) -> tuple[Float[Array, "n d"], PyTree]:
    """Features and the batch statistics after this batch."""
    if not train:
      features: Any = self.module.apply(variables, images, train=False)
      return features, variables["batch_stats"]
    features, updates = self.module.apply(
      variables, images, train=True, mutable=["batch_stats"]
    )
    return features, updates["batch_stats"]


@functools.partial(jax.jit, static_argnames="network")
def _init(network, key):
  images = jnp.zeros((1, *network.image_shape), jnp.float32)
  return network.module.init(key, images, train=False)


def _network(
  blocks, widths, image_shape, mean, std, imagenet_stem=False, **options
):
  channels = image_shape[-1]
  if len(mean) != channels or len(std) != channels:
    raise ValueError(
      f"images have {channels} channels, but mean and std have {len(mean)} and"
      f" {len(std)} values; give one per channel"
    )
  module = ResNet(
    blocks, widths, tuple(mean), tuple(std), imagenet_stem, **options
  )
  return Network(module, tuple(image_shape))


def resnet32(
  *,
  width=16,
  image_shape=(32, 32, 3),
  mean=CIFAR_MEAN,
  std=CIFAR_STD,
  **options,
) -> Network:
  """ResNet-32 for CIFAR: 3 stages of 5 blocks, 64 features."""
  widths = (width, 2 * width, 4 * width)
  return _network((5, 5, 5), widths, image_shape, mean, std, **options)


def resnet8(
  *,
  width=16,
  image_shape=(32, 32, 3),
  mean=CIFAR_MEAN,
  std=CIFAR_STD,
  **options,
) -> Network:
  """A fifth of ResNet-32's work: 3 stages of 1 block, 64 features."""
  widths = (width, 2 * width, 4 * width)
  return _network((1, 1, 1), widths, image_shape, mean, std, **options)


def resnet18(
  *,
  width=64,
  image_shape=(224, 224, 3),
  mean=(0.485, 0.456, 0.406),
  std=(0.229, 0.224, 0.225),
  **options,
) -> Network:
  """ResNet-18 for ImageNet: 4 stages of 2 blocks, 512 features."""
  widths = (width, 2 * width, 4 * width, 8 * width)
  return _network((2, 2, 2, 2), widths, image_shape, mean, std, True, **options)


NETWORKS = {"resnet8": resnet8, "resnet18": resnet18, "resnet32": resnet32}
