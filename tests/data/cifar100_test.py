"""CIFAR-100 in all its forms: official files, TFDS directories, nothing."""

import dataclasses
import os
from pathlib import Path
import pickle
import time

import numpy as np
import pytest
from support import data_files

from mnemonics_jax import data
from mnemonics_jax.data import cifar100, records


@pytest.mark.parametrize(
  "path",
  [
    ".",
    "cifar-100-python",
    "archive",
    "archive/cifar-100-python.tar.gz",
  ],
)
def test_reads_official_files(tmp_path, official, expected, path):
  root, md5 = official
  data_files.assert_same_arrays(
    data_files.load_cifar(root / path, tmp_path, md5), expected
  )


def test_synthetic_pickles_are_what_numpy_reads(official, expected):
  # The stand-ins must agree with the real unpickler on the real format.
  root, _ = official
  with (root / "cifar-100-python/test").open("rb") as file:
    fields = pickle.load(file, encoding="bytes")
  first = fields[b"data"][0].reshape(3, 32, 32)
  np.testing.assert_array_equal(first[1], expected["test_images"][0, :, :, 1])


def test_public_path_refuses_unofficial_files_unread(official, monkeypatch):
  def never(_):
    raise AssertionError("unpickled before the MD5 check")

  monkeypatch.setattr(cifar100, "unpickle", never)
  with pytest.raises(data.DataError, match="16019d7e3df5f24257cddd939b257f8d"):
    data.load("cifar100", official[0])


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty"])
def test_damaged_archive(tmp_path, official, damage):
  whole = (official[0] / "archive/cifar-100-python.tar.gz").read_bytes()
  path = tmp_path / "cifar-100-python.tar.gz"
  path.write_bytes(
    {
      "truncated": whole[: len(whole) // 2],
      "garbage": b"x" * 999,
      "empty": b"",
    }[damage]
  )
  with pytest.raises(data.DataError, match="toronto"):
    data_files.load_cifar(path, tmp_path)


def test_prepared_directory_is_read_in_source_order(
  tmp_path, prepared, expected
):
  for path in (prepared, prepared / "cifar100", prepared / "cifar100/3.0.2"):
    data_files.assert_same_arrays(
      data_files.load_cifar(path, tmp_path / "cache"), expected
    )


def test_tensorflow_is_never_imported(tmp_path, prepared):
  code = """
import sys
from mnemonics_jax.data import cifar100, records
cifar100.load(sys.argv[1], cache_dir=sys.argv[2], per_class={"train": 2, "test": 1})
assert "tensorflow_datasets" in sys.modules
assert "tensorflow" not in sys.modules
"""
  result = data_files.run_python("-c", code, prepared, tmp_path)
  assert result.returncode == 0, result.stderr


def test_incomplete_cifar_is_refused(tmp_path, prepared):
  message = "2 to 2 train images each, expected 100 with 500"
  with pytest.raises(data.DataError, match=message):
    data.load("cifar100", prepared, cache_dir=tmp_path)


def test_image_size_of_cifar_is_fixed(tmp_path):
  with pytest.raises(data.DataError, match="`image_size=64`"):
    data.load("cifar100", tmp_path, image_size=64)


def test_progress_counts_to_the_end(tmp_path, prepared):
  calls = []
  cifar100.load(
    prepared,
    cache_dir=tmp_path,
    per_class=data_files.PER_CLASS,
    report=calls.append,
  )
  assert calls == [(300, 300)]


@pytest.mark.skipif(
  not records.find(
    Path(os.environ.get("MNEMONICS_DATA_DIR") or "/no"), "cifar100"
  ),
  reason="MNEMONICS_DATA_DIR does not name a directory with CIFAR-100",
)
def test_real_cifar100(tmp_path):
  dataset = data.load("cifar100", cache_dir=tmp_path)
  assert dataset.train_images.shape == (50000, 32, 32, 3)
  # Published statistics of the training set.
  mean = dataset.train_images.mean((0, 1, 2)) / 255
  np.testing.assert_allclose(mean, dataset.mean, atol=1e-4)
  assert dataset.class_names[:2] == ("apple", "aquarium_fish")
  assert dataset.class_names[99] == "worm"
  start = time.perf_counter()
  again = data.load("cifar100", cache_dir=tmp_path)
  assert time.perf_counter() - start < 2
  for field in dataclasses.fields(dataset):
    left, right = getattr(dataset, field.name), getattr(again, field.name)
    np.testing.assert_array_equal(left, right)
