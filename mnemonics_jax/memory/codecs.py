"""How images are kept: as they are, or as the codes that Pillow makes of them.

What all codes of a kind share (tables, sizes) is no part of them: a decoder puts
it in front again. Codes end by themselves, so bytes of codes are all there is.
"""

from collections.abc import Mapping, Sequence
import concurrent.futures
import dataclasses
import functools
import io
import re
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Int, UInt8
import numpy as np
from PIL import Image

from mnemonics_jax.errors import UserError

Shape = tuple[int, int, int]


class Codes(NamedTuple):
  """Codes of images, one after the other.

  >>> black = np.zeros((2, 8, 8, 3), np.uint8)
  >>> codes = Raw().encode(black)
  >>> codes.data.shape, codes.sizes.tolist()
  ((384,), [192, 192])

  Attributes:
    data: bytes of all codes.
    sizes: bytes of each.
  """

  data: UInt8[np.ndarray, " bytes"]
  sizes: Int[np.ndarray, " n"]

  @classmethod
  def of(cls, codes: Sequence[bytes]) -> "Codes":
    """Codes that are still apart."""
    data = np.frombuffer(b"".join(codes), np.uint8)
    return cls(data, np.array([len(code) for code in codes], np.int64))

  def apart(self) -> list[np.ndarray]:
    """The bytes of each code."""
    return np.split(self.data, np.cumsum(self.sizes)[:-1])


@runtime_checkable
class Codec(Protocol):
  """A way to keep images; a frozen dataclass, so that a run can be named by it.

  >>> codec: Codec = Jpeg(75)
  >>> codec.suffix, str(codec)
  ('.jpg', 'jpeg:75')

  Attributes:
    suffix: of a file with one image.
    exact: whether images come back as they were.
  """

  suffix: str
  exact: bool

  def check(self, shape: Shape) -> None:
    """Refuses images that it has no codes for."""
    ...

  def shared(self, shape: Shape) -> bytes:
    """What all codes of images of a shape have in common, and do not contain."""
    ...

  def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Codes:
    """The codes of images."""
    ...

  def decode(self, codes: Codes, shape: Shape) -> UInt8[np.ndarray, "n h w c"]:
    """The images that codes stand for."""
    ...

  def to_file(self, code: UInt8[np.ndarray, " bytes"], shape: Shape) -> bytes:
    """A code as a file that other programs read."""
    ...

  def from_file(self, content: bytes, shape: Shape) -> bytes:
    """The code in such a file; ValueError if it is not one of this codec."""
    ...


@dataclasses.dataclass(frozen=True)
class Raw:
  """Pixels as they are.

  >>> images = np.arange(192, dtype=np.uint8).reshape(1, 8, 8, 3)
  >>> bool((round_trip(Raw(), images) == images).all())
  True
  """

  suffix = ".png"
  exact = True

  def check(self, shape: Shape) -> None:
    del shape

  def shared(self, shape: Shape) -> bytes:
    del shape
    return b""

  def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Codes:
    size = int(np.prod(images.shape[1:]))
    return Codes(
      np.ascontiguousarray(images).reshape(-1), np.full(len(images), size)
    )

  def decode(self, codes: Codes, shape: Shape) -> UInt8[np.ndarray, "n h w c"]:
    return codes.data.reshape(-1, *shape)

  def to_file(self, code: UInt8[np.ndarray, " bytes"], shape: Shape) -> bytes:
    return _write(code.reshape(shape), "PNG")

  def from_file(self, content: bytes, shape: Shape) -> bytes:
    return _read(content, "PNG", shape).tobytes()

  def __str__(self) -> str:
    return "raw"


@dataclasses.dataclass(frozen=True)
class Jpeg:
  """JPEG without chroma subsampling; all codes share tables and headers.

  >>> images = np.full((1, 8, 8, 3), 200, np.uint8)
  >>> int(Jpeg(75).encode(images).sizes[0])  # One grey block, and its end.
  5
  >>> round_trip(Jpeg(75), images)[0, 0, 0].tolist()
  [200, 200, 200]

  Attributes:
    quality: 1 to 100, as Pillow has it.
  """

  quality: int = 75
  suffix = ".jpg"
  exact = False

  def __post_init__(self):
    _check_quality(self)

  def check(self, shape: Shape) -> None:
    _check_channels(self, shape, (1, 3))

  def shared(self, shape: Shape) -> bytes:
    return _jpeg_header(self.quality, shape)

  def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Codes:
    return _encode(self, images)

  def decode(self, codes: Codes, shape: Shape) -> UInt8[np.ndarray, "n h w c"]:
    return _decode(self, codes, shape)

  def write(self, image: UInt8[np.ndarray, "h w c"]) -> bytes:
    """The file of an image."""
    return _write(image, "JPEG", quality=self.quality, subsampling=0)

  def read(self, content: bytes, shape: Shape) -> UInt8[np.ndarray, "h w c"]:
    """The image in a file."""
    return _read(content, "JPEG", shape)

  def to_file(self, code: UInt8[np.ndarray, " bytes"], shape: Shape) -> bytes:
    return self.shared(shape) + code.tobytes()

  def from_file(self, content: bytes, shape: Shape) -> bytes:
    header = self.shared(shape)
    if not content.startswith(header):
      raise ValueError(f"it is not a file of {self}")
    return content[len(header) :]

  def __str__(self) -> str:
    return f"jpeg:{self.quality}"


@functools.lru_cache
def _jpeg_header(quality: int, shape: Shape) -> bytes:
  """All that comes before the scan: the same for all images of a shape."""
  content = Jpeg(quality).write(np.zeros(shape, np.uint8))
  scan = content.index(b"\xff\xda") + 2
  return content[: scan + int.from_bytes(content[scan : scan + 2], "big")]


@dataclasses.dataclass(frozen=True)
class WebP:
  """Lossy WebP; all codes share what names the format.

  >>> images = np.full((1, 8, 8, 3), 200, np.uint8)
  >>> bool(abs(round_trip(WebP(75), images).astype(int) - 200).max() < 4)
  True

  Attributes:
    quality: 1 to 100, as Pillow has it.
  """

  quality: int = 75
  suffix = ".webp"
  exact = False

  def __post_init__(self):
    _check_quality(self)

  def check(self, shape: Shape) -> None:
    _check_channels(self, shape, (3,))

  def shared(self, shape: Shape) -> bytes:
    del shape
    return b"RIFF" + bytes(4) + b"WEBPVP8 "  # The length follows from the code.

  def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Codes:
    return _encode(self, images)

  def decode(self, codes: Codes, shape: Shape) -> UInt8[np.ndarray, "n h w c"]:
    return _decode(self, codes, shape)

  def write(self, image: UInt8[np.ndarray, "h w c"]) -> bytes:
    """The file of an image."""
    return _write(image, "WEBP", quality=self.quality)

  def read(self, content: bytes, shape: Shape) -> UInt8[np.ndarray, "h w c"]:
    """The image in a file."""
    return _read(content, "WEBP", shape)

  def to_file(self, code: UInt8[np.ndarray, " bytes"], shape: Shape) -> bytes:
    header = self.shared(shape)
    length = len(header) + len(code) - 8  # Of what comes after it.
    return header[:4] + length.to_bytes(4, "little") + header[8:] + bytes(code)

  def from_file(self, content: bytes, shape: Shape) -> bytes:
    header = self.shared(shape)
    if content[:4] + bytes(4) + content[8 : len(header)] != header:
      raise ValueError(f"it is not a file of {self}")
    return content[len(header) :]

  def __str__(self) -> str:
    return f"webp:{self.quality}"


CODECS: Mapping[str, type] = {"raw": Raw, "jpeg": Jpeg, "webp": WebP}
"""By the name with which a text begins, see `parse_codec`."""


def parse_codec(text: str | Codec) -> Codec:
  """Reads what `str` makes of a codec; a codec itself passes.

  >>> parse_codec("jpeg:90"), parse_codec("jpeg"), parse_codec("raw")
  (Jpeg(quality=90), Jpeg(quality=75), Raw())
  """
  if not isinstance(text, str):
    return text
  parts = re.fullmatch(r"(raw|(jpeg|webp)(?::([0-9]{1,9}))?)", text)
  if parts is None:
    raise UserError(
      "codec",
      f"`codec={text}` is not known",
      "use raw, jpeg:Q or webp:Q with a quality Q from 1 to 100",
    )
  if parts[2] is None:
    return Raw()
  return CODECS[parts[2]](*([int(parts[3])] if parts[3] else []))


def round_trip(
  codec: Codec, images: UInt8[np.ndarray, "n h w c"]
) -> UInt8[np.ndarray, "n h w c"]:
  """What is left of images when they are kept.

  >>> noise = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 3), np.uint8)
  >>> bool((round_trip(Jpeg(75), noise) == noise).all())
  False
  """
  return codec.decode(codec.encode(images), images.shape[1:])


def _check_quality(codec):
  if not 1 <= codec.quality <= 100:
    raise UserError(
      "codec",
      f"`codec={codec}` cannot be used",
      "the quality must lie between 1 and 100",
    )


def _check_channels(codec, shape, known):
  if shape[-1] not in known:
    raise UserError(
      "codec",
      f"`codec={codec}` has no images of {shape[-1]} channels",
      "use `codec=raw`",
    )


def _encode(codec, images):
  shape = images.shape[1:]
  code = lambda image: codec.from_file(codec.write(image), shape)
  return Codes.of(_each(code, images))


def _decode(codec, codes, shape):
  image = lambda code: codec.read(codec.to_file(code, shape), shape)
  found = _each(image, codes.apart() if len(codes.sizes) else [])
  return np.array(found, np.uint8).reshape(-1, *shape)


def _each(function, items):
  """Pillow lets go of the interpreter's lock while it works."""
  with concurrent.futures.ThreadPoolExecutor() as pool:
    return list(pool.map(function, items))


def _write(image, kind, **options):
  pixels = image[..., 0] if image.shape[-1] == 1 else image
  content = io.BytesIO()
  Image.fromarray(np.ascontiguousarray(pixels)).save(content, kind, **options)
  return content.getvalue()


def _read(content, kind, shape):
  with Image.open(io.BytesIO(content), formats=(kind,)) as image:
    if image.size != (shape[1], shape[0]):
      raise ValueError(f"it has {image.size} pixels")
    return np.asarray(image).reshape(shape)
