"""What counts as a usable data set; the digits; the choice by name."""

import copy
import importlib
import inspect
from pathlib import Path
import subprocess
import sys

import numpy as np
import pytest

from mnemonics_jax import data


@pytest.fixture(scope="module")
def digits():
  return data.load("digits")


def test_every_fifth_of_each_class_is_a_test_image(digits):
  from sklearn.datasets import load_digits

  pixels, target = load_digits(return_X_y=True)
  for label in range(10):
    rows = np.flatnonzero(target == label)
    held = [row for place, row in enumerate(rows) if place % 5 == 4]
    expected = np.rint(pixels[held] * 255 / 16).astype(np.uint8)
    found = digits.test_images[digits.test_labels == label]
    np.testing.assert_array_equal(found[..., 0].reshape(-1, 64), expected)
    assert (digits.train_labels == label).sum() == len(rows) - len(held)


def test_digits_are_grey_and_normalised(digits):
  # The first image is a zero; row 1 is 0 0 13 15 10 15 5 0 of 16.
  for channel in range(3):
    np.testing.assert_array_equal(
      digits.train_images[0, 1, :, channel], [0, 0, 207, 239, 159, 239, 80, 0]
    )
  assert np.ptp(digits.train_images, axis=-1).max() == 0
  assert digits.train_images.shape == (1442, 8, 8, 3)
  pixels = digits.train_images / 255
  assert digits.mean == pytest.approx(pixels.mean((0, 1, 2)), abs=1e-4)
  assert digits.std == pytest.approx(pixels.std((0, 1, 2)), abs=1e-4)


def broken(dataset, **changes):
  """A data set of the wrong types, which the tests' type checks do not see."""
  dataset = copy.copy(dataset)
  for name, value in changes.items():
    object.__setattr__(dataset, name, value)
  return dataset


def test_class_without_images(digits):
  names = (*digits.class_names, "ten")
  with pytest.raises(data.DataError, match="no train image of ten"):
    data.verify(broken(digits, class_names=names))


def test_one_image_of_one_class_may_be_enough(digits):
  one = dict(class_names=("0",))
  for split in ("train", "test"):
    rows = np.flatnonzero(getattr(digits, f"{split}_labels") == 0)[:1]
    for kind in ("images", "labels"):
      name = f"{split}_{kind}"
      one[name] = getattr(digits, name)[rows]
  assert (
    len(data.verify(broken(digits, **one), least_classes=1).test_labels) == 1
  )


NAN = np.full((355, 8, 8, 3), np.nan)
BROKEN = {
  "float": ({"test_images": NAN}, "float64, pixels must be uint8"),
  "black": ({"train_images": np.zeros((1442, 8, 8, 3), np.uint8)}, "black"),
  "grey": ({"train_images": np.ones((1442, 8, 8), np.uint8)}, "shape"),
  "one channel": (
    {"train_images": np.ones((1442, 8, 8, 1), np.uint8)},
    "shape",
  ),
  "count": ({"train_labels": np.zeros(7, np.int32)}, "1442 train images"),
  "label type": ({"test_labels": np.zeros(355, np.int64)}, "int64"),
  "label range": ({"test_labels": np.full(355, 10, np.int32)}, "10..10"),
  "negative": ({"test_labels": np.full(355, -1, np.int32)}, "-1..-1"),
  "missing class": (
    {"test_labels": np.zeros(355, np.int32)},
    "test image of 1",
  ),
  "sizes": ({"test_images": np.full((355, 9, 9, 3), 9, np.uint8)}, "differ"),
  "names": ({"class_names": ("0",) * 10}, "same name"),
  "one class": ({"class_names": ("0",)}, "2 are the minimum"),
  "std": ({"std": (0.0, 1.0, 1.0)}, "positive"),
  "mean": ({"mean": (0.5,)}, "one finite value per channel"),
  "nan mean": ({"mean": (0.5, np.nan, 0.5)}, "finite"),
  "infinite std": ({"std": (1.0, np.inf, 1.0)}, "finite"),
  "empty": (
    {
      "test_images": np.zeros((0, 8, 8, 3), np.uint8),
      "test_labels": np.zeros(0, np.int32),
    },
    "no test images",
  ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_verify_names_the_problem(digits, case):
  changes, message = BROKEN[case]
  with pytest.raises(data.DataError, match=message):
    data.verify(broken(digits, **changes))


def test_unknown_name_and_wrong_size():
  with pytest.raises(data.DataError, match="digits, cifar100, folder"):
    data.load("mnist")
  with pytest.raises(
    data.DataError, match="`image_size=32` is not an option of digits"
  ):
    data.load("digits", image_size=32)
  with pytest.raises(data.DataError, match=r"\(cifar100 has download, "):
    data.load("cifar100", strict=True)


def test_unreadable_directory_is_a_message(tmp_path, monkeypatch):
  from mnemonics_jax.data import cifar100, folder

  def denied(*_, **__):
    raise PermissionError(13, "Permission denied", "/secret")

  monkeypatch.setattr(cifar100, "load", denied)
  with pytest.raises(data.DataError, match=r"`data_dir=.*/secret \(Permission"):
    data.load("cifar100", tmp_path)
  monkeypatch.setattr(folder, "scan", denied)
  with pytest.raises(data.DataError, match=r"`data_dir=.*/secret \(Permission"):
    data.load("folder", tmp_path)


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", data.SOURCES)
def test_every_source_takes_what_load_gives(name):
  source = data.SOURCES[name]
  module = importlib.import_module(source.module)
  loader = getattr(module, source.load)
  parameters = list(inspect.signature(loader).parameters.values())
  first, *others = parameters
  assert first.name == "data_dir"
  assert all(p.kind is p.KEYWORD_ONLY for p in others)
  assert {"cache_dir", "report", "share"} <= {p.name for p in others}
  assert all(p.default is not p.empty for p in others)
  kinds = {p.name: type(p.default) for p in others} | {"data_dir": str}
  assert source.streams == ("stream" in kinds)
  for option, words in source.options.items():
    assert (words.kind, bool(words.help)) == (kinds[option], True)


def test_people_know_data_sets_by_their_titles():
  assert data.sources.title_of("cifar100") == "CIFAR-100"
  assert data.sources.title_of("my pets") == "my pets"


def test_a_new_source_is_a_module_and_a_line(tmp_path, monkeypatch):
  (tmp_path / "doubled.py").write_text(
    "import dataclasses\n"
    "from mnemonics_jax.data import digits\n"
    "def load(data_dir=None, *, cache_dir, report, share, factor=1):\n"
    "  found = digits.load()\n"
    "  names = tuple(factor * name for name in found.class_names)\n"
    "  return dataclasses.replace(found, name='doubled', class_names=names)\n"
  )
  monkeypatch.syspath_prepend(tmp_path)
  source = data.Source("doubled", "Doubled", "digits, called twice")
  monkeypatch.setitem(data.SOURCES, "doubled", source)
  assert data.load("doubled", factor=2).class_names[:2] == ("00", "11")
  with pytest.raises(data.DataError, match="doubled has factor"):
    data.load("doubled", times=2)


def test_names_are_known_without_jax_and_without_the_loaders():
  code = (
    "import sys; import mnemonics_jax.data as data; print(*data.SOURCES);"
    "data.ClassStream, data.PhaseData, data.StreamShape, data.stream;"
    "modules = {source.module for source in data.SOURCES.values()};"
    "print(sorted({'jax', 'sklearn', *modules} & set(sys.modules)))"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
  )
  names, loaded = done.stdout.splitlines()
  assert names.split() == list(data.SOURCES)
  assert loaded == "[]", done.stderr
