"""The data sets by name: how to load each, and how flags and reports describe it.

A new data set is an entry in `SOURCES` and a module with a function
`load(data_dir, *, cache_dir, report, share)`. It may take options of its own and
returns a `Dataset`. The module is imported when the data set is loaded, so that
flags and help need not wait for it.
"""

from collections.abc import Mapping
import types
from typing import NamedTuple


class Option(NamedTuple):
  """A setting of one data set.

  Attributes:
    kind: `bool`, `int`, `float` or `str`.
    help: what it does.
  """

  kind: type
  help: str


class Source(NamedTuple):
  """A data set: its description, and the module that loads it.

  Attributes:
    module: has the function that loads it.
    title: what people call it.
    help: what it consists of.
    classes: how many it has; None if that depends on a directory.
    options: arguments of `load` that a user may choose.
    streams: whether `load` takes `stream`, too, as `phase.Config` has it: when
      images are read. Those of others are in memory, or never are.
    load: name of that function.
  """

  module: str
  title: str
  help: str
  classes: int | None = None
  options: Mapping[str, Option] = types.MappingProxyType({})
  streams: bool = False
  load: str = "load"


_IMAGENET = {
  "data_dir": Option(
    str,
    "where python -m mnemonics_jax.data.prepare has written; the default is"
    " $MNEMONICS_DATA_DIR, then ~/tensorflow_datasets",
  ),
  "image_size": Option(int, "side of the squares that are cut out, in pixels"),
  "decoder": Option(
    str, "pillow, or simplejpeg, which gives the same pixels a little sooner"
  ),
  "workers": Option(
    int,
    "processes that read images; the default is one per core, with 0 it is done"
    " by the one that learns",
  ),
}

SOURCES = {
  "digits": Source(
    "mnemonics_jax.data.digits",
    "digits",
    "1,797 grey images of 8×8 pixels, which come with scikit-learn",
    classes=10,
  ),
  "cifar100": Source(
    "mnemonics_jax.data.cifar100",
    "CIFAR-100",
    "60,000 photographs of 32×32 pixels",
    classes=100,
    options={
      "data_dir": Option(
        str,
        "a TFDS data_dir, cifar-100-python/ or its .tar.gz; the default is"
        " $MNEMONICS_DATA_DIR, then ~/tensorflow_datasets",
      ),
      "download": Option(bool, "fetch it through TFDS if it is not there"),
    },
  ),
  "folder": Source(
    "mnemonics_jax.data.folder",
    "an image folder",
    "images of your own, a directory for each class",
    options={
      "image_size": Option(
        int, "images are resized and cropped to this many pixels square"
      ),
      "val_fraction": Option(
        float, "share of each class to test on when there is no val/"
      ),
      "strict": Option(
        bool, "stop at an unreadable image instead of skipping it"
      ),
    },
    streams=True,
  ),
  "imagenet": Source(
    "mnemonics_jax.data.imagenet",
    "ImageNet",
    "ILSVRC 2012, 1.3 million photographs, read while they are learned",
    classes=1000,
    options=_IMAGENET,
  ),
  "imagenet_subset": Source(
    "mnemonics_jax.data.imagenet",
    "ImageNet-Subset",
    "100 classes of it",
    classes=100,
    options=_IMAGENET,
    load="load_subset",
  ),
}
"""The data sets by name."""


def title_of(name: str) -> str:
  """The title of a data set; its name if it is not in `SOURCES`."""
  return SOURCES[name].title if name in SOURCES else name
