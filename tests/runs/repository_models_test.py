"""The models of phase 0 that come with the repository."""

import os
from pathlib import Path

import numpy as np
import pytest

from mnemonics_jax import data, protocol
from mnemonics_jax.identity import restore
from mnemonics_jax.nn.model import Model
from mnemonics_jax.phase.evaluate import extract
from mnemonics_jax.runs import published

MODELS = sorted(
  path.parent
  for path in (Path(__file__).parents[2] / "results/base_models").glob(
    "*/*.json"
  )
)
each = pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)


def logits(path, images):
  """What a published model says of its own classes."""
  base = published.load(path)
  (network, method, *_), _ = restore(base.about["made_with"])
  rows = len(base.variables["params"]["head"]["weight"])
  model = Model(network, method.head, rows)
  _, found = extract(model, method, base.variables, images)
  return found[:, : len(base.about["class_names"])]


@each
def test_it_is_whole_and_tells_where_it_is_from(path):
  about = published.load(path).about
  assert len(about["commit"]) == 40 and about["command"].startswith("python -m")
  shape = published.network(path).image_shape
  images = np.random.default_rng(0).integers(0, 256, (4, *shape), np.uint8)
  found = logits(path, images)
  assert found.shape == (4, len(about["class_names"]))
  assert np.isfinite(found).all() and np.ptp(found, axis=0).all()


@each
@pytest.mark.slow
def test_it_is_as_good_as_it_says(path):
  """With the same images, on any machine, up to some near ties."""
  if "MNEMONICS_DATA_DIR" not in os.environ:
    pytest.skip("MNEMONICS_DATA_DIR does not say where CIFAR-100 is")
  about = published.about(path)
  dataset = data.load(about["dataset"], os.environ["MNEMONICS_DATA_DIR"])
  names = about["class_names"]
  order = protocol.class_order(len(dataset.class_names))[: len(names)]
  assert [dataset.class_names[label] for label in order] == names
  rows = np.isin(dataset.test_labels, order)
  found = order[logits(path, dataset.test_images[rows]).argmax(-1)]
  accuracy = (found == dataset.test_labels[rows]).mean()
  assert accuracy == pytest.approx(about["accuracy"]["head"], abs=1e-3)
