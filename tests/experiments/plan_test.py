"""What a run is going to do, in plain words."""

from pathlib import Path

from support import tiny

from experiments import plan
from experiments.settings import Settings, build


def describe(*, classes=6, **changes):
  values = dict(net="resnet8", memory="per_class:4", base_classes=3, phases=3)
  settings = Settings("tiny", "short", **(values | changes))
  config, stream = build(settings, tiny.dataset(classes=classes))
  return plan.describe(settings, config, stream, Path("runs/out"))


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


def test_classes_and_device_are_named():
  _, classes, device = describe().splitlines()
  assert classes.startswith("Classes, in the order they are learned: class ")
  assert classes.count("(12") == 6 and classes.count("training images") == 1
  assert device == "Computing on 1 CPU device."
  assert " and 4 more." in describe(classes=12).splitlines()[1]


def test_a_total_budget_ends_with_the_share_of_a_class():
  text = describe(memory="total:13")
  assert "The memory (total:13) ends with 2 exemplars per class: 12" in text


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
