"""What a run is going to do, in plain words."""

import dataclasses
from pathlib import Path

import pytest
from support import tiny

from experiments import opening
from mnemonics_jax.data import ClassStream
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import Settings, presets, resolve
from mnemonics_jax.settings.build import build

PLAIN = Settings(
  "tiny", "short", net="resnet8", memory="per_class:4", base_classes=3, phases=3
)


def describe(*, classes=6, **changes):
  settings = dataclasses.replace(PLAIN, **changes)
  config, stream = build(settings, tiny.dataset(classes=classes))
  return opening.describe(settings, config, stream, Path("runs/out"))


def test_it_tells_what_is_learned_how_and_where_to():
  text = describe()
  for part in (
    "6 classes of tiny with lucir and mnemonics exemplars",
    "4 phases of 3 + 3×1 classes, once, with resnet8",
    "--preset=short, a reduced one.",
    # 4 images of 8·8·3 bytes for each of 6 classes.
    "The memory (per_class:4) ends with 4 exemplars per class: 24 images, 4.6 kB",
    "the network's own classifier (`head`)",
    "Results go to runs/out.",
  ):
    assert part in text
  assert "upper bound" not in text


def test_a_preset_that_is_the_papers_no_more_says_why():
  settings = Settings("cifar100", "paper", **presets.of("cifar100")["paper"])
  config, stream = build(
    dataclasses.replace(PLAIN, net="resnet32"), tiny.dataset()
  )
  told = lambda s: opening.describe(s, config, stream, Path("runs/out"))
  assert "on the schedule of --preset=paper, the paper's. " in told(settings)
  changed = dataclasses.replace(settings, transfer="none", order_seed=3)
  assert (
    "--preset=paper, which is not the paper's: transfer none (paper: in_out),"
    " order_seed 3 (paper: 1993). "
  ) in told(changed)


def test_data_are_called_what_people_call_them():
  settings = dataclasses.replace(PLAIN, dataset="folder")
  for name, title in (("cifar100", "CIFAR-100"), ("my pets", "my pets")):
    dataset = dataclasses.replace(tiny.dataset(), name=name)
    text = opening.describe(
      settings, *build(settings, dataset), Path("runs/out")
    )
    assert f"Learning the 6 classes of {title} with" in text


def test_classes_and_device_are_named():
  _, classes, device = describe().splitlines()
  assert classes.startswith("Classes, in the order they are learned: class ")
  assert classes.count("(12") == 6 and classes.count("training images") == 1
  assert device == "Computing on 1 CPU device."
  assert " and 4 more." in describe(classes=12).splitlines()[1]


def test_a_total_budget_ends_with_the_share_of_a_class():
  text = describe(memory="total:13")
  assert "The memory (total:13) ends with 2 exemplars per class: 12" in text


def test_bytes_and_codes_are_told():
  text = describe(memory="per_class_bytes:700")  # 192 bytes each.
  assert (
    "The memory (per_class_bytes:700) ends with 700 bytes per class, 4.2 kB in"
    " all: at most 3 exemplars of a class."
  ) in text
  text = describe(memory="total_bytes:1200", codec="jpeg:50")
  assert (
    "The memory (total_bytes:1200, jpeg:50) ends with 96 bytes per class, 576 bytes"
    " in all, and 623 bytes that all share: at most "
  ) in text
  text = describe(codec="jpeg:50")
  assert "(per_class:4, jpeg:50) ends with 4 exemplars per class: 24 im" in text


def test_seeds_and_read_out_are_named():
  text = describe(method="icarl", seeds=(0, 3))
  assert "once per seed (0, 3)" in text
  assert "the nearest mean of exemplars (`nme`)" in text


def test_the_upper_bound_says_what_it_is():
  text = describe(method="joint", exemplars="herding")
  assert "It is the upper bound: every phase trains on the raw data" in text


def test_equal_phases_are_counted():
  assert "5 phases of 2 + 4×1 classes" in describe(base_classes=2, phases=4)
  assert "2 phases of 2×3 classes" in describe(phases=1)
  assert "3 phases of 3 + 2×2 classes" in describe(classes=7, phases=2)
  text = describe(phases=0)
  assert (
    "the 3 classes of" in text and "in one phase of 3 classes, once" in text
  )


def test_photographs_whose_views_vary_are_not_augmented_twice(monkeypatch):
  """Training sees random parts of them; --augment acts on exemplars only."""
  words = (
    "random parts of the photographs; --augment=crop acts on exemplars only."
  )
  assert words not in describe(augment="crop")
  monkeypatch.setattr(ClassStream, "varies", True)
  assert words in describe(augment="crop")
  plain = dict(exemplars="herding", finetune="none")
  assert words not in describe(dataset="imagenet", augment="crop", **plain)
  # There it acts nowhere, and is refused. The name of the directory has it as ever.
  with pytest.raises(UserError, match="`augment` has no effect with ImageNet"):
    resolve("imagenet", "paper", {"augment": "none", **plain})
  known = resolve("imagenet", "paper", plain).identity()
  assert known["augment"] == "resized_crop"
  for other in (dict(adjust=True), dict(finetune="head")):
    resolve("imagenet", "paper", {**plain, "augment": "none", **other})
  resolve("folder", "paper", {"augment": "none", **plain})
