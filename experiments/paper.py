"""The paper's settings for CIFAR-100 and ImageNet, and whether a run has them."""

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
  less_forget=5.0,
  images_per_class=None,
  augment="crop_flip",
  init_exemplars="random",
  reference_code=True,
  recipe="paper",
)
PAPER_IMAGENET = PAPER | dict(
  net="resnet18",
  epochs=90,
  base_epochs=90,
  milestones=(1 / 3, 2 / 3),
  less_forget=10.0,
  augment="resized_crop",
  image_size=224,
)
_BY_DATASET = {"cifar100": PAPER, "folder": PAPER_IMAGENET}


def reductions(settings: Settings, complete: bool = True) -> list[str]:
  """In what a run differs from the paper, in words.

  Args:
    settings: the run.
    complete: whether mnemonics without weight transfer counts as a difference.
  """
  paper = dict(_BY_DATASET.get(settings.dataset, PAPER))
  paper |= {"dtype": "float32", "exemplar_chunk": None}
  if settings.exemplars == "mnemonics" or settings.adjust:
    paper |= {"scope": None, "max_change": None, "meta_epochs": None}
  else:
    del paper["recipe"]
  if settings.adjust:
    paper["adjust_parts"] = 2
  if settings.exemplars == "mnemonics":
    paper["validated_on"] = "new"
  else:
    del paper["init_exemplars"]
  if not settings.forgets_less:
    del paper["less_forget"]
  if settings.finetune != "none":
    paper["finetune"] = "all"
  mnemonics = settings.exemplars == "mnemonics" and complete
  if settings.transfer != "none" or mnemonics:
    paper["transfer"] = "in_out"
  return [
    f"{name} {getattr(settings, name)}"
    + ("" if value is None else f" (paper: {value})")
    for name, value in paper.items()
    if getattr(settings, name) != value
  ]


def follows_paper(settings: Settings) -> bool:
  """Whether network, schedule and recipe are the paper's (else reduced)."""
  return settings.dataset in _BY_DATASET and not reductions(
    settings, complete=False
  )
