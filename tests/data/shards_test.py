"""A prepared directory: a journal, an index that comes last, files that are checked."""

import json

import numpy as np
import pytest
from support import imagenet

from mnemonics_jax.data import DataError, shards
from mnemonics_jax.data.shards import Shard, Shards, read_index

FIRST, SECOND, _ = imagenet.WNIDS


def shard(directory, file, names, wnids, split="train", content=b"records"):
  """A shard whose file is made up."""
  (directory / file).write_bytes(content)
  return Shard(
    file, split, "origin", len(content), "sum", names, wnids,
    [10 * i for i in range(len(names))],
  )  # fmt: skip


@pytest.fixture
def written(tmp_path):
  return [
    shard(tmp_path, "train-0", ["b_2", "a_9"], [SECOND, FIRST]),
    shard(tmp_path, "train-1", ["a_1"], [FIRST]),
    shard(tmp_path, "val-0", ["v"], [SECOND], split="validation"),
  ]


def test_the_journal_knows_what_is_complete(tmp_path, written):
  assert shards.begun(tmp_path) == {}
  assert not shards.is_begun(tmp_path)
  for one in written:
    shards.append(tmp_path, one)
  again = written[0]._replace(size=99)
  shards.append(tmp_path, again)
  found = shards.begun(tmp_path)
  assert list(found) == ["train-0", "train-1", "val-0"]
  assert found["train-0"] == again  # The last line counts.
  assert shards.is_begun(tmp_path)


def test_a_line_that_a_power_cut_has_torn_is_passed_over(tmp_path, written):
  shards.append(tmp_path, written[0])
  with (tmp_path / "shards.jsonl").open("a") as file:
    file.write(json.dumps(written[1]._asdict())[:30])
  assert list(shards.begun(tmp_path)) == ["train-0"]


def test_rows_are_sorted_by_class_and_name(tmp_path, written):
  shards.write_index(tmp_path, "imagenet", (FIRST, SECOND), written)
  index = shards.read_index(tmp_path)
  assert index.rows["train"].tolist() == [
    (0, 1, 0, 0),
    (0, 0, 1, 10),
    (1, 0, 0, 0),
  ]
  assert index.rows["validation"].tolist() == [(1, 2, 0, 0)]
  assert index.files == ("train-0", "train-1", "val-0")
  assert (index.dataset, index.wnids) == ("imagenet", (FIRST, SECOND))
  shards.remove_index(tmp_path)
  with pytest.raises(DataError, match="preparation was interrupted"):
    shards.read_index(tmp_path)


def test_an_image_that_is_there_twice_is_named(tmp_path, written):
  twice = [*written, shard(tmp_path, "train-2", ["a_1"], [FIRST])]
  with pytest.raises(DataError, match="has a_1 twice in its train split"):
    shards.write_index(tmp_path, "imagenet", imagenet.WNIDS, twice)


@pytest.mark.parametrize(
  "harm, said",
  [
    (lambda d: (d / "train-1").unlink(), "train-1 is missing"),
    (lambda d: (d / "val-0").write_bytes(b"rec"), "val-0 has 3 of 7 bytes"),
    (lambda d: np.save(d / "train.npy", np.zeros(2)), "train.npy is not what"),
    (lambda d: (d / "index.json").write_text("{"), "its index is damaged"),
    (
      lambda d: (d / "index.json").write_text(json.dumps({"format": 9})),
      r"its index is damaged \(format 9\)",
    ),
  ],
)
def test_what_has_changed_is_noticed(tmp_path, written, harm, said):
  shards.write_index(tmp_path, "imagenet", imagenet.WNIDS, written)
  harm(tmp_path)
  with pytest.raises(DataError, match=said) as error:
    shards.read_index(tmp_path)
  assert error.value.fix == shards.REPAIR


def test_checksums_are_those_of_sha256sum(tmp_path):
  (tmp_path / "file").write_bytes(b"abc")
  assert shards.sha256(tmp_path / "file") == (
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
  )


def test_a_row_is_the_file_that_it_was_or_refused(prepared_imagenet):
  index = read_index(prepared_imagenet / "imagenet")
  files = Shards(index.directory, index.files, 16)
  photos, rows = imagenet.photos()["train"], index.rows["train"]
  for name, row in zip(sorted(photos), rows, strict=True):
    assert files.encoded(row) == photos[name][1]
  wrong = rows[:1].copy()
  wrong["crc"] ^= 1
  with pytest.raises(DataError, match=r"image 0 of .*its checksum is wrong"):
    files.encoded(wrong[0])
  wrong["position"] = 10**6
  with pytest.raises(DataError, match="cannot be read"):
    files.views(wrong)
