"""Layers: convolution with optional weight transfer, batch normalisation."""

from flax import linen as nn
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mnemonics_jax.nn.conv import conv2d

_he_normal = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


class Conv(nn.Module):
  """A square convolution without bias, optionally under scale/shift transfer.

  Attributes:
    features: output channels.
    size: height and width of the kernel.
    stride: step between outputs.
  """

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


class BatchNorm(nn.Module):
  """Normalises each channel, the last axis, to mean `bias` and deviation `scale`.

  One multiply-add per entry: (x − μ)/σ·γ + β is x·a + b with a = γ/√(σ² + ε) and
  b = β − μ·a for each channel. No array of x − μ is stored for the backward pass,
  which saves a third of the memory.

  Names, shapes and updates are those of flax's `BatchNorm`. Sums and products are
  computed in float32 or better, whatever the type of the images.

  Attributes:
    use_running_average: whether to normalise by the running statistics instead of
      those of the batch.
    momentum: share of the running statistics that remains after a batch.
    epsilon: added to the variance.
  """

  use_running_average: bool
  momentum: float = 0.9
  epsilon: float = 1e-5

  @nn.compact
  def __call__(self, x: Float[Array, "*n c"]) -> Float[Array, "*n c"]:
    shape = (x.shape[-1],)
    running_mean = self.variable("batch_stats", "mean", jnp.zeros, shape)
    running_var = self.variable("batch_stats", "var", jnp.ones, shape)
    scale = self.param("scale", nn.initializers.ones, shape)
    bias = self.param("bias", nn.initializers.zeros, shape)
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    if self.use_running_average:
      mean, var = running_mean.value, running_var.value
    else:
      mean, var = _moments(wide)
      if not self.is_initializing():
        keep, add = self.momentum, 1 - self.momentum
        running_mean.value = keep * running_mean.value + add * mean
        running_var.value = keep * running_var.value + add * var
    a = scale * lax.rsqrt(var + self.epsilon)
    b = bias - mean * a
    return (wide * a + b).astype(x.dtype)


def _moments(x):
  """Mean and variance of each channel, in one pass over x."""
  axes = tuple(range(x.ndim - 1))
  mean = x.mean(axes)
  # Rounding must not make it negative: its square root follows.
  return mean, jnp.maximum(0.0, (x * x).mean(axes) - mean * mean)
