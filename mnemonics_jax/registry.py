"""The names that a run is made of, and what to say about them.

For flags, help and reports, which must not wait for JAX: this module imports
nothing of it. What stands behind the names is in `methods.METHODS`,
`nn.networks.NETWORKS` and `nn.augment.AUGMENTATIONS`; a test compares.
"""

from collections.abc import Mapping
from typing import NamedTuple


class MethodWords(NamedTuple):
  """A base method in words.

  >>> METHODS["icarl"].label, METHODS["icarl"].readout
  ('iCaRL', 'nme')

  Attributes:
    label: what people call it.
    readout: the read-out whose numbers are its results.
    help: what it does.
    finetune: the balanced fine-tune that belongs to it.
  """

  label: str
  readout: str
  help: str
  finetune: str = "none"


METHODS = {
  "bic": MethodWords("BiC", "head", "distillation, then bias correction"),
  "e2e": MethodWords(
    "E2E",
    "head",
    "distillation per old phase, noise on gradients, a fine-tune with a teacher",
    finetune="all",
  ),
  "icarl": MethodWords("iCaRL", "nme", "the loss of lwf"),
  "icarl_bce": MethodWords(
    "iCaRL with sigmoid outputs", "nme", "the loss of the original iCaRL"
  ),
  "joint": MethodWords(
    "upper bound", "head", "the upper bound: keeps all data"
  ),
  "lucir": MethodWords(
    "LUCIR", "head", "cosine head, less-forget constraint, margin ranking"
  ),
  "lwf": MethodWords("LwF", "head", "distillation, with exemplars"),
}

READOUTS = {
  "head": "the network's own classifier",
  "nme": "the nearest mean of exemplars",
}

NETWORKS = {
  "resnet18": "for ImageNet, 512 features",
  "resnet32": "for CIFAR, 64 features",
  "resnet8": "a fifth of the work of resnet32",
}

AUGMENTATIONS = {
  "none": "images as they are",
  "crop": "shifted by at most a pixel, for digits",
  "crop_flip": "shifted by at most four pixels, mirrored; for CIFAR",
  "resized_crop": "a part, enlarged and mirrored; for ImageNet",
}

EXEMPLARS = {
  "random": "chosen among the images of a class at random",
  "herding": "chosen so that their mean feature is that of the class",
  "selected": "chosen among the images by a score that bilevel optimisation learns",
  "mnemonics": "learned by bilevel optimisation",
}
# What learned exemplars begin with: those that are chosen.
INIT_EXEMPLARS = ("random", "herding")

CODECS = {
  "raw": "as they are",
  "jpeg": "coded with Pillow, colours at full resolution",
  "webp": "coded with Pillow; only for exemplars that are chosen",
}

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


def choices(words: Mapping[str, str | MethodWords]) -> str:
  """Names with what they mean, for `--help`; methods with their read-out.

  >>> choices(READOUTS)
  "head: the network's own classifier; nme: the nearest mean of exemplars"
  >>> choices({"lwf": METHODS["lwf"]})
  'lwf (head): distillation, with exemplars'

  Args:
    words: one of the tables of this module.
  """
  return "; ".join(
    f"{name} ({entry.readout}): {entry.help}"
    if isinstance(entry, MethodWords)
    else f"{name}: {entry}"
    for name, entry in words.items()
  )
