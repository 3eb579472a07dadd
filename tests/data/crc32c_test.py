"""Checksums of tfrecord files, against two others' and published ones."""

import numpy as np
from tensorboardX import crc32c as other
from tensorboardX import record_writer

from mnemonics_jax.data import records as crc_lib


def test_published_values():
  """RFC 3720, appendix B.4."""
  known = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
  }
  assert crc_lib.crc32c_many([*known]).tolist() == [*known.values()]
  assert [crc_lib.crc32c(data) for data in known] == [*known.values()]


def test_records_of_all_lengths_agree_with_another_implementation():
  rng = np.random.default_rng(0)
  lengths = [*range(10), 511, 512, 513, 1024, 3000, 0, 5]
  records = [rng.bytes(length) for length in lengths]
  expected = [other._crc32c(record) for record in records]
  assert crc_lib.crc32c_many(records).tolist() == expected
  assert [crc_lib.crc32c(record) for record in records] == expected
  stored = [record_writer.masked_crc32c(record) for record in records]
  assert crc_lib.masked(crc_lib.crc32c_many(records)).tolist() == stored
  assert crc_lib.crc32c_many([]).tolist() == []
