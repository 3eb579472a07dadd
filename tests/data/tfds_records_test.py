"""Records of TFDS directories: both formats, versions, damage."""

import os
import shutil

import pytest
from support import data_files

from mnemonics_jax import data
from mnemonics_jax.data import cifar100, records


def test_tfrecord_directory_is_read(tmp_path, prepared, expected):
  from array_record.python import array_record_module

  directory = tmp_path / "cifar100/3.0.2"
  directory.mkdir(parents=True)
  source = prepared / "cifar100/3.0.2"
  names = (source / "label.labels.txt").read_bytes()
  (directory / "label.labels.txt").write_bytes(names)
  for path in source.glob("*.array_record-*"):
    reader = array_record_module.ArrayRecordReader(str(path))
    # Two shards, and the written in reverse.
    written = reader.read_all()[::-1]
    reader.close()
    for i, part in enumerate((written[:60], written[60:])):
      name = path.name.replace("array_record", "tfrecord")
      name = name.replace("00000-of-00001", f"0000{i}-of-00002")
      (directory / name).write_bytes(b"".join(map(data_files.framed, part)))
  data_files.assert_same_arrays(
    data_files.load_cifar(tmp_path, tmp_path / "cache"), expected
  )
  os.truncate(directory / "cifar100-test.tfrecord-00001-of-00002", 5000)
  with pytest.raises(data.DataError, match="truncated"):
    data_files.load_cifar(tmp_path, tmp_path / "cache")


def test_no_bit_of_a_tfrecord_goes_unguarded(tmp_path):
  """Wherever it is: in a length, in a record, in a checksum."""
  written = [b"a" * 20, b"b" * 5]
  path = tmp_path / "cifar100-test.tfrecord-00000-of-00001"
  whole = b"".join(map(data_files.framed, written))
  path.write_bytes(whole)
  assert list(records.read(path)) == written
  for at in range(len(whole)):
    changed = bytearray(whole)
    changed[at] ^= 1 << at % 8
    path.write_bytes(changed)
    with pytest.raises(ValueError, match=r"differ|truncated"):
      list(records.read(path))


def test_extra_shards_are_called_extra(tmp_path):
  data_files.write_tfds(tmp_path / "3.0.2", data_files.cifar_arrays())
  first = tmp_path / "3.0.2" / "cifar100-train.tfrecord-00000-of-00002"
  shutil.copy(first, first.with_name("cifar100-train.tfrecord-00000-of-00005"))
  with pytest.raises(data.DataError, match=r"has 3 files .* be 2; .* extra"):
    cifar100._tfds_files(tmp_path / "3.0.2")


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


def test_newest_complete_version_is_taken(tmp_path):
  for name in ("3.0.2", "3.0.10", "3.0.9", "4.0.0.incompleteABC"):
    (tmp_path / "cifar100" / name).mkdir(parents=True)
    (tmp_path / "cifar100" / name / "cifar100-train.array_record-0").touch()
  found = records.find(tmp_path, "cifar100")
  assert found == tmp_path / "cifar100/3.0.10"
