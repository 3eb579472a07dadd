"""The tables of ImageNet: cells are run on a small one, and stand beside the paper's."""

import csv

import numpy as np
from PIL import Image
import pytest
from support import imagenet, tables

from experiments.tables.fill import fill
from mnemonics_jax import data
from mnemonics_jax.data.imagenet import WORLDS
from mnemonics_jax.data.prepare import prepare_imagenet

SIZES = dict(phases="5", preset="smoke", image_size="16", base_epochs="1")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  """Ten classes of ImageNet-Subset, as a part of all of ImageNet."""
  home, rng = tmp_path_factory.mktemp("imagenet"), np.random.default_rng(0)
  for wnid in WORLDS["imagenet_subset"]().wnids[:10]:
    color = rng.integers(0, 256, 3)
    for split, count in (("train", 10), ("val", 2)):
      place = home / "photos" / split / wnid
      place.mkdir(parents=True)
      for i in range(count):
        pixels = color + rng.integers(-40, 41, (24, 30, 3))
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        (place / f"{wnid}_{i}.JPEG").write_bytes(imagenet.encode(image))
  prepare_imagenet(
    WORLDS["imagenet"](), home / "photos", home / "data", reduced=True
  )
  return home / "data"


# Average accuracy and forgetting that the paper prints for N = 5.
PAPER = {
  ("1", "imagenet"): {"LUCIR with mnemonics": ("64.54", "13.85")},
  ("2", "imagenet_subset"): {
    "random, not adjusted": ("70.67", "18.92"),
    "mnemonics, adjusted": ("72.58", "17.40"),
  },
  ("2", "imagenet"): {"mnemonics, adjusted": ("–", "–")},
  ("s1", "imagenet_subset"): {
    "LUCIR": ("71.20", "27.96"),
    "LUCIR with mnemonics": ("72.60", "16.56"),
  },
  ("s2", "imagenet_subset"): {
    "without distillation": ("65.74", "29.32"),
    "with distillation": ("72.58", "17.40"),
  },
}
ROWS = {
  "1": ["lucir_mnemonics"],
  "2": ["random", "mnemonics_adjust"],
  "s1": ["lucir", "lucir_mnemonics"],
  "s2": ["nodistill", "distill"],
}
LEARNED = "lucir_mnemonics", "mnemonics_adjust", "nodistill", "distill"


@pytest.mark.slow
@pytest.mark.parametrize("table, dataset", PAPER)
def test_cells_are_filled_beside_those_of_the_paper(
  tmp_path, prepared, table, dataset
):
  expected = PAPER[table, dataset]
  rows = ROWS[table][-len(expected) :]
  memory = "total:50" if table == "s1" else "per_class:5"
  flags = dict(SIZES, table=table, dataset=dataset, rows=",".join(rows))
  plan = tables.table(tmp_path, memory=memory, **flags)
  fill(plan, data.load(dataset, prepared, image_size=16, workers=0))
  _, text, _ = tables.written(plan)
  assert f"a part of the data: 10 of {len(WORLDS[dataset]().wnids):,}" in text
  table_rows = [line.strip("| ").split(" | ") for line in text.splitlines()]
  for label, papers in expected.items():
    # Differences follow these two.
    accuracy, forgetting, *_ = [row for row in table_rows if row[0] == label]
    for (_, measured, paper, *_), printed in zip(
      (accuracy, forgetting), papers, strict=True
    ):
      assert paper.removesuffix(" †") == printed
      assert abs(float(measured.replace("−", "-"))) <= 100
  drawn = tmp_path / "tables" / plan.name
  with open(f"{drawn}_n5.csv") as file:
    points = list(csv.DictReader(file))
  # Every row after each of six phases, in both panels.
  assert len(points) == 2 * 6 * len(rows)
  for row in set(rows) & set(LEARNED):
    with open(f"{drawn}_distances_{row}.csv") as file:
      assert len(list(file)) > 6
