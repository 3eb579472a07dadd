"""Codecs: how the memory stores images, raw or as Pillow codes them.

Headers that are equal for all images are stored once and put back when decoding.
Only the remaining bytes, the codes, count against the memory budget.

To add a codec, write a class with the methods of `Codec` in a file of its own, and
add an entry to `registry.CODECS`.
"""

from collections.abc import Mapping, Sequence
import concurrent.futures
import dataclasses
import functools
import io
import re
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Int, UInt8
import numpy as np
from PIL import Image

from mnemonics_jax import registry
from mnemonics_jax.errors import UserError

Shape = tuple[int, int, int]


class Codes(NamedTuple):
  """Codes of images, one after the other.

  Attributes:
    data: bytes of all codes.
    sizes: bytes of each.
  """

  data: UInt8[np.ndarray, " bytes"]
  sizes: Int[np.ndarray, " n"]

  @classmethod
  def of(cls, codes: Sequence[bytes]) -> "Codes":
    """Joins the codes of single images."""
    data = np.frombuffer(b"".join(codes), np.uint8)
    return cls(data, np.array([len(code) for code in codes], np.int64))

  def apart(self) -> list[np.ndarray]:
    """The bytes of each code."""
    return np.split(self.data, np.cumsum(self.sizes)[:-1])


@runtime_checkable
class Codec(Protocol):
  """A way to store images. A frozen dataclass, since the hash of a run has it.

  It has no field, or one: a quality. `str` gives the text that `parse_codec` reads.

  Attributes:
    suffix: of a file with one image.
    exact: whether images come back unchanged.
  """

  suffix: str
  exact: bool

  def check(self, shape: Shape) -> None:
    """Refuses images that it cannot code."""
    ...

  def shared(self, shape: Shape) -> bytes:
    """The bytes that all files of this shape share and that codes leave out."""
    ...

  def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Codes:
    """The codes of images."""
    ...

  def decode(self, codes: Codes, shape: Shape) -> UInt8[np.ndarray, "n h w c"]:
    """The images of codes."""
    ...

  def to_file(self, code: UInt8[np.ndarray, " bytes"], shape: Shape) -> bytes:
    """A code as a file that other programs read."""
    ...

  def from_file(self, content: bytes, shape: Shape) -> bytes:
    """The code in such a file; ValueError if another codec wrote it."""
    ...


@dataclasses.dataclass(frozen=True)
class Raw:
  """Pixels as they are; a PNG outside."""

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
class _Pillow:
  """What the lossy formats of Pillow have in common.

  Attributes:
    quality: 1 to 100, as Pillow has it.
    kind: Pillow's name of the format.
    options: of Pillow, beside the quality.
    channels: numbers of channels that the format has.
  """

  quality: int = 75
  kind: ClassVar[str]
  options: ClassVar[Mapping[str, Any]] = {}
  channels: ClassVar[tuple[int, ...]]
  exact = False

  def __post_init__(self):
    if not 1 <= self.quality <= 100:
      raise UserError(
        "codec",
        f"`codec={self}` cannot be used",
        "the quality must lie between 1 and 100",
      )

  def check(self, shape: Shape) -> None:
    if shape[-1] not in self.channels:
      raise UserError(
        "codec",
        f"`codec={self}` has no images of {shape[-1]} channels",
        "use `codec=raw`",
      )

  def shared(self, shape: Shape) -> bytes:
    raise NotImplementedError

  def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Codes:
    shape = images.shape[1:]
    code = lambda image: self.from_file(self.write(image), shape)
    return Codes.of(_each(code, images))

  def decode(self, codes: Codes, shape: Shape) -> UInt8[np.ndarray, "n h w c"]:
    image = lambda code: self.read(self.to_file(code, shape), shape)
    found = _each(image, codes.apart() if len(codes.sizes) else [])
    return np.array(found, np.uint8).reshape(-1, *shape)

  def write(self, image: UInt8[np.ndarray, "h w c"]) -> bytes:
    """The file of an image."""
    return _write(image, self.kind, quality=self.quality, **self.options)

  def read(self, content: bytes, shape: Shape) -> UInt8[np.ndarray, "h w c"]:
    """The image in a file."""
    return _read(content, self.kind, shape)

  def to_file(self, code: UInt8[np.ndarray, " bytes"], shape: Shape) -> bytes:
    return self.shared(shape) + code.tobytes()

  def from_file(self, content: bytes, shape: Shape) -> bytes:
    header = self.shared(shape)
    if not content.startswith(header):
      raise ValueError(f"it is not a file of {self}")
    return content[len(header) :]

  def __str__(self) -> str:
    return f"{self.kind.lower()}:{self.quality}"


@dataclasses.dataclass(frozen=True)
class Jpeg(_Pillow):
  """JPEG without chroma subsampling; all codes share tables and headers."""

  suffix = ".jpg"
  kind = "JPEG"
  options: ClassVar[Mapping[str, Any]] = {"subsampling": 0}
  channels = (1, 3)

  def shared(self, shape: Shape) -> bytes:
    return _jpeg_header(self.quality, shape)


@functools.lru_cache
def _jpeg_header(quality: int, shape: Shape) -> bytes:
  """All that comes before the scan: the same for all images of a shape."""
  content = Jpeg(quality).write(np.zeros(shape, np.uint8))
  scan = content.index(b"\xff\xda") + 2
  return content[: scan + int.from_bytes(content[scan : scan + 2], "big")]


@dataclasses.dataclass(frozen=True)
class WebP(_Pillow):
  """Lossy WebP; all codes share the header that names the format."""

  suffix = ".webp"
  kind = "WEBP"
  channels = (3,)

  def shared(self, shape: Shape) -> bytes:
    del shape
    return b"RIFF" + bytes(4) + b"WEBPVP8 "  # The length follows from the code.

  def to_file(self, code: UInt8[np.ndarray, " bytes"], shape: Shape) -> bytes:
    content = super().to_file(code, shape)
    length = len(content) - 8  # Of what comes after it.
    return content[:4] + length.to_bytes(4, "little") + content[8:]

  def from_file(self, content: bytes, shape: Shape) -> bytes:
    return super().from_file(content[:4] + bytes(4) + content[8:], shape)


# Classes: `Codec` cannot say that they are dataclasses.
CODECS: Mapping[str, Any] = registry.Objects(registry.CODECS)


def parse_codec(text: str | Codec) -> Codec:
  """Reads what `str` makes of a codec, such as `jpeg:90`; a codec itself passes."""
  if not isinstance(text, str):
    return text
  parts = re.fullmatch(r"(\w+)(?::([0-9]{1,9}))?", text)
  name, quality = parts.groups() if parts else ("", None)
  made = CODECS.get(name)
  if made is None or (quality and not dataclasses.fields(made)):
    forms = [
      f"{name}:Q" if dataclasses.fields(cls) else name
      for name, cls in CODECS.items()
    ]
    raise UserError(
      "codec",
      f"`codec={text}` is not known",
      f"use {', '.join(forms)}, where Q is a quality from 1 to 100",
    )
  return made(int(quality)) if quality else made()


def round_trip(
  codec: Codec, images: UInt8[np.ndarray, "n h w c"]
) -> UInt8[np.ndarray, "n h w c"]:
  """Images as the memory gives them back."""
  return codec.decode(codec.encode(images), images.shape[1:])


def _each(function, items):
  """Applies a function in threads: Pillow releases the interpreter's lock."""
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
