"""Files of records: which are found, and that no bit of them goes unguarded."""

import numpy as np
import pytest
from support import data_files
from tensorboardX import crc32c as other
from tensorboardX import record_writer

from mnemonics_jax.data import records


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


def test_newest_complete_version_is_taken(tmp_path):
  for name in ("3.0.2", "3.0.10", "3.0.9", "4.0.0.incompleteABC"):
    (tmp_path / "cifar100" / name).mkdir(parents=True)
    (tmp_path / "cifar100" / name / "cifar100-train.array_record-0").touch()
  found = records.find(tmp_path, "cifar100")
  assert found == tmp_path / "cifar100/3.0.10"


def test_published_values():
  """RFC 3720, appendix B.4."""
  known = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
  }
  assert records.crc32c_many([*known]).tolist() == [*known.values()]
  assert [records.crc32c(data) for data in known] == [*known.values()]


def test_records_of_all_lengths_agree_with_another_implementation():
  rng = np.random.default_rng(0)
  lengths = [*range(10), 511, 512, 513, 1024, 3000, 0, 5]
  parts = [rng.bytes(length) for length in lengths]
  expected = [other._crc32c(record) for record in parts]
  assert records.crc32c_many(parts).tolist() == expected
  assert [records.crc32c(record) for record in parts] == expected
  stored = [record_writer.masked_crc32c(record) for record in parts]
  assert records.masked(records.crc32c_many(parts)).tolist() == stored
  assert records.crc32c_many([]).tolist() == []
