"""New images as they would be kept, so that codes do not tell old from new.

Old classes are seen through a codec, new ones are sharp: a network that is trained
on both learns that what is sharp is new, and test images are sharp.
"""

import dataclasses

from mnemonics_jax.data.images import Draws, Images, Pixels, Rows, Store, Stored
from mnemonics_jax.memory import Codec, round_trip


@dataclasses.dataclass(frozen=True, eq=False)
class _Coded:
  """A store whose images were coded and decoded; a `Store`."""

  store: Store
  codec: Codec

  @property
  def image_shape(self) -> tuple[int, int, int]:
    return self.store.image_shape

  @property
  def varies(self) -> bool:
    return self.store.varies

  def checksum(self, rows: Rows, start: int = 0) -> int:
    return self.store.checksum(rows, start)

  def read(self, rows: Rows, draws: Draws | None = None) -> Pixels:
    return round_trip(self.codec, self.store.read(rows, draws))


def as_kept(codec: Codec, images: Images) -> Images:
  """What is left of images when they are kept; stored ones are coded when read.

  >>> import numpy as np
  >>> from mnemonics_jax.memory import Jpeg
  >>> noise = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 3), np.uint8)
  >>> bool((as_kept(Jpeg(75), noise) == noise).all())
  False

  Args:
    codec: how they would be kept.
    images: in memory or in a store.
  """
  if codec.exact:
    return images
  if isinstance(images, Stored):
    return Stored(_Coded(images.store, codec), images.rows)
  return round_trip(codec, images)
