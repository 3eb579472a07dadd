"""CIFAR-100 in all its forms: official files, TFDS directories, nothing."""

import dataclasses
import os
import pickle
import shutil
import struct
import time

import numpy as np
import pytest
from support import data_files

from mnemonics_jax import data
from mnemonics_jax.data import cifar100, cifar_pickle, prepare


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

  monkeypatch.setattr(cifar_pickle, "unpickle", never)
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


def test_prepared_directory_is_read_by_tfds(prepared, expected):
  import tensorflow_datasets as tfds

  source = tfds.data_source(
    "cifar100", split="train", data_dir=prepared, download=False
  )
  assert len(source) == 200
  example = next(e for e in source if e["id"] == b"train_00007")
  np.testing.assert_array_equal(example["image"], expected["train_images"][7])
  assert example["label"] == expected["train_labels"][7]
  assert example["coarse_label"] == expected["train_labels"][7] // 5


def test_prepare_never_overwrites_and_leaves_nothing_half(
  tmp_path, official, monkeypatch
):
  root, md5 = official
  target = tmp_path / "cifar100/3.0.2"
  target.mkdir(parents=True)
  (target / "precious").write_text("kept")
  with pytest.raises(data.DataError, match="exists and is left"):
    prepare.prepare(root, tmp_path, md5=md5)
  assert [p.name for p in target.iterdir()] == ["precious"]

  def interrupted(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(prepare, "_compare", interrupted)
  with pytest.raises(KeyboardInterrupt):
    prepare.prepare(root, tmp_path / "new", md5=md5)
  assert list((tmp_path / "new").iterdir()) == []


def test_prepare_detects_what_was_written_wrongly(
  tmp_path, official, monkeypatch
):
  root, md5 = official
  write = prepare._write_records

  def wrong(path, name, split, report):
    return write(path, name, split._replace(images=255 - split.images), report)

  monkeypatch.setattr(prepare, "_write_records", wrong)
  with pytest.raises(data.DataError, match="differs"):
    prepare.prepare(root, tmp_path, md5=md5)
  assert list(tmp_path.iterdir()) == []


def test_prepare_refuses_missing_source_and_unwritable_target(
  tmp_path, official, capsys
):
  assert prepare.run(None, None) == 2
  assert "--source is missing" in capsys.readouterr().err
  assert prepare.run(str(tmp_path), None) == 2
  assert f"--source={tmp_path}" in capsys.readouterr().err
  root, md5 = official
  occupied = tmp_path / "file"
  occupied.touch()
  with pytest.raises(data.DataError, match=r"`data_dir=.*cannot write"):
    prepare.prepare(root, occupied / "below", md5=md5)


def test_prepare_on_the_command_line(tmp_path, official):
  module = "-m", "mnemonics_jax.data.prepare"
  result = data_files.run_python(
    *module, f"--source={official[0]}", f"--data_dir={tmp_path}"
  )
  assert result.returncode == 2
  assert "not the official file" in result.stderr
  assert "Traceback" not in result.stderr
  assert list(tmp_path.iterdir()) == []


def test_tensorflow_is_never_imported(tmp_path, prepared):
  code = """
import sys
from mnemonics_jax.data import cifar100
cifar100.load(sys.argv[1], cache_dir=sys.argv[2], per_class={"train": 2, "test": 1})
assert "tensorflow_datasets" in sys.modules
assert "tensorflow" not in sys.modules
"""
  result = data_files.run_python("-c", code, prepared, tmp_path)
  assert result.returncode == 0, result.stderr


def test_tfrecord_directory_is_read(tmp_path, prepared, expected):
  from array_record.python import array_record_module

  directory = tmp_path / "cifar100/3.0.2"
  directory.mkdir(parents=True)
  source = prepared / "cifar100/3.0.2"
  names = (source / "label.labels.txt").read_bytes()
  (directory / "label.labels.txt").write_bytes(names)
  for path in source.glob("*.array_record-*"):
    reader = array_record_module.ArrayRecordReader(str(path))
    # Two shards, and the records in reverse.
    records = reader.read_all()[::-1]
    reader.close()
    for i, part in enumerate((records[:60], records[60:])):
      name = path.name.replace("array_record", "tfrecord")
      name = name.replace("00000-of-00001", f"0000{i}-of-00002")
      (directory / name).write_bytes(
        b"".join(
          struct.pack("<Q", len(r)) + b"crc_" + r + b"crc_" for r in part
        )
      )
  data_files.assert_same_arrays(
    data_files.load_cifar(tmp_path, tmp_path / "cache"), expected
  )
  os.truncate(directory / "cifar100-test.tfrecord-00001-of-00002", 5000)
  with pytest.raises(data.DataError, match="truncated"):
    data_files.load_cifar(tmp_path, tmp_path / "cache")


def test_other_tfds_formats_are_explained(tmp_path):
  directory = tmp_path / "cifar100/3.0.2"
  directory.mkdir(parents=True)
  (directory / "cifar100-train.riegeli-00000-of-00001").touch()
  with pytest.raises(data.DataError, match=r"mnemonics_jax\.data\.prepare"):
    data.load("cifar100", tmp_path, cache_dir=tmp_path)


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty"])
def test_damaged_records_are_named(tmp_path, prepared, damage):
  shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
  directory = tmp_path / "cifar100/3.0.2"
  path = directory / "cifar100-test.array_record-00000-of-00001"
  content = bytearray(path.read_bytes())
  content[1000] ^= 1  # Within the first image.
  size = {"flipped": None, "truncated": -1000, "empty": 0}[damage]
  path.write_bytes(content[:size])
  with pytest.raises(data.DataError, match=f"{directory} are damaged"):
    data_files.load_cifar(tmp_path, tmp_path / "cache")


def test_incomplete_cifar_is_refused(tmp_path, prepared):
  message = "2 to 2 train images each, expected 100 with 500"
  with pytest.raises(data.DataError, match=message):
    data.load("cifar100", prepared, cache_dir=tmp_path)


def test_newest_complete_version_is_taken(tmp_path):
  for name in ("3.0.2", "3.0.10", "3.0.9", "4.0.0.incompleteABC"):
    (tmp_path / "cifar100" / name).mkdir(parents=True)
    (tmp_path / "cifar100" / name / "cifar100-train.array_record-0").touch()
  found = cifar100.tfds_records.find(tmp_path)
  assert found == tmp_path / "cifar100/3.0.10"


def test_image_size_of_cifar_is_fixed(tmp_path):
  with pytest.raises(data.DataError, match="`image_size=64`"):
    data.load("cifar100", tmp_path, image_size=64)


def test_progress_counts_to_the_end(tmp_path, prepared):
  calls = []
  cifar100.load(
    prepared,
    cache_dir=tmp_path,
    per_class=data_files.PER_CLASS,
    progress=lambda done, total: calls.append((done, total)),
  )
  assert calls == [(300, 300)]


@pytest.mark.skipif(
  "MNEMONICS_DATA_DIR" not in os.environ,
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
