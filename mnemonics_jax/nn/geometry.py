"""What the three maps of a convolution share."""

from typing import NamedTuple


class Geometry(NamedTuple):
  """What the three maps of one convolution share; static and hashable.

  >>> Geometry(size=(32, 32), kernel=3, stride=2, padding=1).out_size
  (16, 16)

  Attributes:
    size: height and width of the input.
    kernel: height and width of the square kernel.
    stride: step between outputs, both directions.
    padding: zeros on each of the four sides.
  """

  size: tuple[int, int]
  kernel: int
  stride: int
  padding: int

  @property
  def out_size(self) -> tuple[int, int]:
    """Height and width of the output."""
    reach = 2 * self.padding - self.kernel
    h, w = ((n + reach) // self.stride + 1 for n in self.size)
    return h, w
