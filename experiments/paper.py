"""The paper's letter for CIFAR-100 and ImageNet, and whether a run follows it."""

from experiments.settings import Settings

PAPER = dict(
  net="resnet32",
  epochs=160,
  base_epochs=160,
  learning_rate=0.1,
  weight_decay=5e-4,
  batch_size=128,
  milestones=(0.5, 0.75),
  finetune_epochs=50,
  finetune_learning_rate=0.01,
  images_per_class=None,
  augment="crop_flip",
  init_exemplars="random",
  recipe="paper",
)
PAPER_IMAGENET = PAPER | dict(
  net="resnet18",
  epochs=90,
  base_epochs=90,
  milestones=(1 / 3, 2 / 3),
  augment="resized_crop",
  image_size=224,
)
_LETTERS = {"cifar100": PAPER, "folder": PAPER_IMAGENET}


def reductions(settings: Settings, complete: bool = True) -> list[str]:
  """In what a run differs from the paper's letter, in words.

  Args:
    settings: the run.
    complete: whether mnemonics without weight transfer counts as a difference.
  """
  letter = dict(_LETTERS.get(settings.dataset, PAPER))
  letter |= {"dtype": "float32", "exemplar_chunk": None}
  learns = settings.exemplars == "mnemonics" or settings.adjust
  if learns:
    letter |= {"scope": None, "max_change": None, "meta_epochs": None}
  else:
    del letter["recipe"]
  if settings.exemplars != "mnemonics":
    del letter["init_exemplars"]
  if settings.finetune != "none":
    letter["finetune"] = "all"
  mnemonics = settings.exemplars == "mnemonics" and complete
  if settings.transfer != "none" or mnemonics:
    letter["transfer"] = "in_out"
  return [
    f"{name} {getattr(settings, name)}"
    + ("" if value is None else f" (paper: {value})")
    for name, value in letter.items()
    if getattr(settings, name) != value
  ]


def follows_paper(settings: Settings) -> bool:
  """Whether network, schedule and recipe are the paper's (else reduced)."""
  return settings.dataset in _LETTERS and not reductions(
    settings, complete=False
  )
