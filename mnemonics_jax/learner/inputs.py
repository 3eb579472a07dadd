"""Checks what a user gives a learner: images, names of classes, a network."""

from collections.abc import Iterable, Sequence
from typing import Any

from flax import linen
from jaxtyping import Int, UInt8
import numpy as np

from mnemonics_jax.errors import UserError
from mnemonics_jax.learner.known import Name
from mnemonics_jax.methods import Method
from mnemonics_jax.nn.networks import NETWORKS, Network


def as_images(
  images: Any, shape: Sequence[int] | None = None
) -> UInt8[np.ndarray, "n h w c"]:
  """The images as [n, height, width, channels]; grey ones may lack channels.

  Args:
    images: uint8 pixels.
    shape: required of each image; None allows any.
  """
  try:
    images = np.asarray(images)
  except ValueError as error:
    raise UserError(
      "images", "the images differ in size", "resize them to one size"
    ) from error
  if images.ndim == 3:
    images = images[..., None]
  if images.dtype != np.uint8 or images.ndim != 4:
    raise UserError(
      "images",
      f"images are {images.dtype} of shape {images.shape}",
      "give uint8 pixels in 0..255 of shape [n, height, width, channels]",
    )
  if shape is not None and images.shape[1:] != tuple(shape):
    raise UserError(
      "images",
      f"images are {_size(images.shape[1:])}, the network takes {_size(shape)}",
      "resize them",
    )
  return images


def _size(shape):
  return "×".join(map(str, shape))


def as_names(names: Iterable[Any], images: int) -> list[Name]:
  """The name of each image as a plain value, not NumPy's."""
  plain = lambda name: name.item() if isinstance(name, np.generic) else name
  plain_names = [plain(name) for name in names]
  if len(plain_names) != images:
    raise UserError(
      "names",
      f"there are {images} images and {len(plain_names)} names",
      "give the name of the class of each image",
    )
  if not images:
    raise UserError("images", "there are no images", "give at least one")
  for name in plain_names:
    try:
      usable = name == name and hash(name) == hash(name)
    except TypeError:
      usable = False
    if not usable:
      raise UserError(
        "names",
        f"{name!r} cannot name a class: it cannot be the key of a dict, or does"
        " not equal itself",
        "use texts, numbers or tuples of them",
      )
  return plain_names


def new_names(names: Sequence[Name], before: Sequence[Name]) -> list[Name]:
  """The new class names, in the order of their first images.

  Args:
    names: of each image.
    before: of the classes that were learned before.
  """
  new, known = list(dict.fromkeys(names)), set(before)
  if again := [name for name in new if name in known]:
    raise UserError(
      "names",
      f"{listed(again)} {_was(again)} learned before",
      "give images of new classes only",
    )
  if len(new) + len(before) < 2:
    raise UserError(
      "names",
      "there is nothing to tell apart: the images show fewer than two classes",
      "begin with two or more",
    )
  return new


def as_labels(
  names: Sequence[Name], known: Sequence[Name]
) -> Int[np.ndarray, " n"]:
  """The label of each name: its position in `known`. Refuses other names."""
  place = {name: label for label, name in enumerate(known)}
  if unknown := [name for name in dict.fromkeys(names) if name not in place]:
    raise UserError(
      "names",
      f"{listed(unknown)} {_was(unknown)} not learned",
      f"known are {listed(known)}",
    )
  return np.array([place[name] for name in names], np.int32)


def labelled(
  images: Any, names: Iterable[Any], shape: Sequence[int], known: Sequence[Name]
) -> tuple[UInt8[np.ndarray, "n h w c"], Int[np.ndarray, " n"]]:
  """Images of known classes as an array, and their labels."""
  images = as_images(images, shape)
  return images, as_labels(as_names(names, len(images)), known)


def _was(names):
  return "was" if len(names) == 1 else "were"


def listed(names: Sequence[Name], most: int = 5) -> str:
  """The first names, for an error message."""
  more = ", ..." if len(names) > most else ""
  return ", ".join(repr(name) for name in names[:most]) + more


def check_incremental(method: Method) -> None:
  """Refuses joint training, which needs all classes in every phase."""
  if method.joint:
    raise UserError(
      "method",
      f"`method={method.name}` needs the images of all classes in every phase",
      "choose one that learns from new classes alone, such as lucir",
    )


def network_for(
  network: Any, images: UInt8[np.ndarray, "n h w c"], **options: Any
) -> Any:
  """The network for images of this size. A named one normalises them.

  Args:
    network: a name, a linen module, or an object with the methods of `Network`.
    images: of the first phase; a named network takes their mean and deviation.
    **options: of a named network.
  """
  _, height, width, channels = images.shape
  shape = height, width, channels
  if isinstance(network, linen.Module):
    return Network(network, shape)
  if not isinstance(network, str):
    as_images(images, network.image_shape)
    return network
  pixels = images.reshape(-1, channels) / 255
  return NETWORKS[network](
    image_shape=shape,
    mean=pixels.mean(0).round(4).tolist(),
    std=np.maximum(pixels.std(0), 1e-2).round(4).tolist(),
    **options,
  )
