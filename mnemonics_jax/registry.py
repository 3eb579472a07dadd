"""The members of each family by name: methods, networks, codecs, read-outs, ...

An entry says in words what a member does, and where its object is. Flags, help and
reports read the words without waiting for JAX. `Objects` imports what is asked for.

To add a member, write it in a file of its own and add one entry here. The tests in
`tests/contracts` then run on it. An entry may also be added at run time:

  registry.METHODS["mine"] = registry.MethodEntry(
    "my_module:MyMethod", "what it does", "My method", readout="nme"
  )
"""

from collections.abc import Iterator, Mapping
import dataclasses
import pkgutil
from typing import Any, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Entry:
  """A member of a family.

  Attributes:
    home: where its object is, as `module:name`.
    help: what it does.
  """

  home: str
  help: str


@dataclasses.dataclass(frozen=True)
class MethodEntry(Entry):
  """A base method.

  Attributes:
    label: what people call it.
    readout: the read-out whose numbers are its results.
    finetune: the balanced fine-tune that belongs to it.
  """

  label: str
  readout: str
  finetune: str = "none"


class Objects(Mapping[str, T]):
  """The objects of a family by name, each imported when it is asked for."""

  def __init__(self, entries: Mapping[str, Entry]):
    self._entries = entries

  def __getitem__(self, name: str) -> T:
    found: Any = pkgutil.resolve_name(self._entries[name].home)
    return found

  def __iter__(self) -> Iterator[str]:
    return iter(self._entries)

  def __len__(self) -> int:
    return len(self._entries)


METHODS = {
  "bic": MethodEntry(
    "mnemonics_jax.methods.bic:BiC",
    "distillation, then bias correction",
    "BiC",
    readout="head",
  ),
  "e2e": MethodEntry(
    "mnemonics_jax.methods.e2e:E2E",
    "distillation per old phase, noise on gradients, a fine-tune with a teacher",
    "E2E",
    readout="head",
    finetune="all",
  ),
  "icarl": MethodEntry(
    "mnemonics_jax.methods.lwf:ICaRL", "the loss of lwf", "iCaRL", readout="nme"
  ),
  "icarl_bce": MethodEntry(
    "mnemonics_jax.methods.lwf:ICaRLBCE",
    "the loss of the original iCaRL",
    "iCaRL with sigmoid outputs",
    readout="nme",
  ),
  "joint": MethodEntry(
    "mnemonics_jax.methods.base:Joint",
    "the upper bound: keeps all data",
    "upper bound",
    readout="head",
  ),
  "lucir": MethodEntry(
    "mnemonics_jax.methods.lucir:LUCIR",
    "cosine head, less-forget constraint, margin ranking",
    "LUCIR",
    readout="head",
  ),
  "lwf": MethodEntry(
    "mnemonics_jax.methods.lwf:LwF",
    "distillation, with exemplars",
    "LwF",
    readout="head",
  ),
}

READOUTS = {
  "head": Entry(
    "mnemonics_jax.readouts.base:Head", "the network's own classifier"
  ),
  "nme": Entry(
    "mnemonics_jax.readouts.nme:NearestMean", "the nearest mean of exemplars"
  ),
}

NETWORKS = {
  "resnet18": Entry(
    "mnemonics_jax.nn.networks:resnet18", "for ImageNet, 512 features"
  ),
  "resnet32": Entry(
    "mnemonics_jax.nn.networks:resnet32", "for CIFAR, 64 features"
  ),
  "resnet8": Entry(
    "mnemonics_jax.nn.networks:resnet8", "a fifth of the work of resnet32"
  ),
}

AUGMENTATIONS = {
  "none": Entry("mnemonics_jax.nn.augment:NONE", "images as they are"),
  "crop": Entry(
    "mnemonics_jax.nn.augment:CROP", "shifted by at most a pixel, for digits"
  ),
  "crop_flip": Entry(
    "mnemonics_jax.nn.augment:CROP_FLIP",
    "shifted by at most four pixels, mirrored; for CIFAR",
  ),
  "resized_crop": Entry(
    "mnemonics_jax.nn.augment:RESIZED_CROP",
    "a part, enlarged and mirrored; for ImageNet",
  ),
}

CODECS = {
  "raw": Entry("mnemonics_jax.memory.codecs:Raw", "as they are"),
  "jpeg": Entry(
    "mnemonics_jax.memory.codecs:Jpeg",
    "coded with Pillow, colours at full resolution",
  ),
  "webp": Entry(
    "mnemonics_jax.memory.codecs:WebP",
    "coded with Pillow; only for exemplars that are chosen",
  ),
}

EXEMPLARS = {
  "random": Entry(
    "mnemonics_jax.exemplars.choose:Random",
    "chosen among the images of a class at random",
  ),
  "herding": Entry(
    "mnemonics_jax.exemplars.choose:Herding",
    "chosen so that their mean feature is that of the class",
  ),
  "selected": Entry(
    "mnemonics_jax.exemplars.choose:Selected",
    "chosen among the images by a score that bilevel optimisation learns",
  ),
  "mnemonics": Entry(
    "mnemonics_jax.exemplars.learn:Learned", "learned by bilevel optimisation"
  ),
}
# What learned exemplars begin with: those that are chosen.
INIT_EXEMPLARS = ("random", "herding")

REHEARSALS = {
  "once": "each exemplar once an epoch, like a new image",
  "balanced": "a class of exemplars as often as a new class",
  "K": "an exemplar K times as often as a new image, such as 4",
}

VALIDATIONS = {
  "new": "the new data alone, as in Eq. 7 and 9 of the paper",
  "all": "the new data and the old exemplars",
}

TRANSFERS = {
  "none": "train all weights",
  "in_out": "one scale per kernel slice over frozen weights",
  "out": "one scale per output channel over frozen weights",
}

RECIPES = {
  "tuned": "on frozen features within a trust region",
  "paper": "as in the paper, an unroll of the whole network (slow on a CPU)",
}

SCOPES = {
  "head": "the head alone",
  "transfer": "scales and shifts over frozen weights",
  "all": "the whole network",
}

CURVES = {
  "steps": "divided by 10 twice",
  "cosine": "down to zero along a cosine",
  "one_cycle": "up for a third of the epochs, then down to zero",
}

PRESETS = {
  "paper": "the paper's network and schedule, for an accelerator",
  "fast": "the paper's network, a quarter of its epochs or fewer",
  "short": "reduced to what 2 CPU cores can do",
  "best": "short, with what served best on CIFAR-100, in as many bytes: herding, JPEGs",
  "smoke": "minutes, only to see that everything works",
}

DTYPES = {
  "float32": "exact",
  "bfloat16": "faster and smaller on TPUs and new GPUs",
}

STREAMS = {
  "auto": "if they do not fit",
  "always": "even if they do",
  "never": "all are on the device",
}

FINETUNES = {
  "none": "no balanced fine-tune on the memory",
  "head": "of the head alone",
  "all": "of the whole model",
}


def choices(words: Mapping[str, str | Entry]) -> str:
  """Names with what they mean, for `--help`; methods with their read-out.

  >>> choices({"lwf": METHODS["lwf"], "raw": CODECS["raw"]})
  'lwf (head): distillation, with exemplars; raw: as they are'
  """
  said = []
  for name, entry in words.items():
    judged = f" ({entry.readout})" if isinstance(entry, MethodEntry) else ""
    help_ = entry.help if isinstance(entry, Entry) else entry
    said.append(f"{name}{judged}: {help_}")
  return "; ".join(said)
