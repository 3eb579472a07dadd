"""Data sets: a name and perhaps a directory become verified uint8 arrays.

>>> from mnemonics_jax import data
>>> digits = data.load("digits")
>>> digits.train_images.shape, digits.train_images.dtype
((1442, 8, 8, 3), dtype('uint8'))

Cut into phases they are what a run learns from:

>>> [len(phase.labels) for phase in data.stream(digits, phases=5)]
[719, 147, 146, 140, 144, 146]

`sources` lists them, and tells how to add one.
"""

from collections.abc import Callable, Iterator
import contextlib
import importlib
import inspect
import os
from typing import Any

from mnemonics_jax.data.dataset import DataError, Dataset, verify
from mnemonics_jax.data.reading import read_images
from mnemonics_jax.data.share import Share
from mnemonics_jax.data.sources import SOURCES, Option, Source
from mnemonics_jax.data.stream import (
  ClassStream,
  PhaseData,
  StreamShape,
  for_tuning,
  stream,
)
from mnemonics_jax.progress import Report, ignore

__all__ = [
  "SOURCES",
  "ClassStream",
  "DataError",
  "Dataset",
  "Option",
  "PhaseData",
  "Share",
  "Source",
  "StreamShape",
  "for_tuning",
  "load",
  "read_images",
  "stream",
  "verify",
]


def load(
  name: str,
  data_dir: str | os.PathLike | None = None,
  *,
  cache_dir: str | os.PathLike | None = None,
  report: Report = ignore,
  share: Share = Share(),
  **options: Any,
) -> Dataset:
  """Loads and verifies a data set.

  Args:
    name: one of `SOURCES`.
    data_dir: where to look; `digits` needs none, `cifar100` has defaults.
    cache_dir: keeps decoded arrays; `~/.cache/mnemonics_jax` if None.
    report: is called with the progress of decoding.
    share: the part of the images that this process decodes. Every process
      returns all of them.
    **options: options of the data set, such as `image_size` of `folder`.

  Raises:
    DataError: names the setting, the problem and the fix.
  """
  with share.relay_errors(), _explaining(data_dir):
    if name not in SOURCES:
      raise DataError(
        "dataset",
        f"There is no data set {name!r}",
        f"choose {', '.join(SOURCES)}",
      )
    source = SOURCES[name]
    loader = getattr(importlib.import_module(source.module), source.load)
    common = dict(cache_dir=cache_dir, report=report, share=share)
    _check_options(name, loader, common, options)
    dataset = loader(data_dir, **common, **options)
    return verify(dataset, least_classes=options.get("least_classes", 2))


def _check_options(
  name: str,
  loader: Callable[..., Dataset],
  common: dict[str, Any],
  options: dict[str, Any],
) -> None:
  """Refuses options that the data set does not have."""
  signature = inspect.signature(loader)
  try:
    signature.bind(None, **common, **options)
  except TypeError:
    known = [o for o in signature.parameters if o not in {"data_dir", *common}]
    unknown = next(option for option in options if option not in known)
    raise DataError(
      unknown,
      f"`{unknown}={options[unknown]}` is not an option of {name}",
      f"leave it out ({name} has {', '.join(known) or 'none'})",
    ) from None


@contextlib.contextmanager
def _explaining(data_dir: str | os.PathLike | None) -> Iterator[None]:
  """Turns errors of the operating system into a sentence with a fix."""
  try:
    yield
  except OSError as error:
    raise DataError(
      "data_dir",
      f"`data_dir={data_dir}`: cannot read {error.filename or 'it'}"
      f" ({error.strerror or error})",
      "check the path and its permissions",
    ) from error
