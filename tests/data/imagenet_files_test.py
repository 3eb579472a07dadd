"""What a prepared directory has: a journal, and an index that comes last."""

import json

import numpy as np
import pytest
from support import imagenet

from mnemonics_jax.data import DataError, imagenet_files
from mnemonics_jax.data.imagenet_files import Shard

FIRST, SECOND, _ = imagenet.WNIDS


def shard(directory, file, names, wnids, split="train", content=b"records"):
  """A shard whose file is made up."""
  (directory / file).write_bytes(content)
  return Shard(
    file, split, "origin", len(content), "sum", names, wnids,
    [10 * i for i in range(len(names))],
  )  # fmt: skip


@pytest.fixture
def shards(tmp_path):
  return [
    shard(tmp_path, "train-0", ["b_2", "a_9"], [SECOND, FIRST]),
    shard(tmp_path, "train-1", ["a_1"], [FIRST]),
    shard(tmp_path, "val-0", ["v"], [SECOND], split="validation"),
  ]


def test_the_journal_knows_what_is_complete(tmp_path, shards):
  assert imagenet_files.begun(tmp_path) == {}
  assert not imagenet_files.is_begun(tmp_path)
  for one in shards:
    imagenet_files.append(tmp_path, one)
  again = shards[0]._replace(size=99)
  imagenet_files.append(tmp_path, again)
  found = imagenet_files.begun(tmp_path)
  assert list(found) == ["train-0", "train-1", "val-0"]
  assert found["train-0"] == again  # The last line counts.
  assert imagenet_files.is_begun(tmp_path)


def test_a_line_that_a_power_cut_has_torn_is_passed_over(tmp_path, shards):
  imagenet_files.append(tmp_path, shards[0])
  with (tmp_path / "shards.jsonl").open("a") as file:
    file.write(json.dumps(shards[1]._asdict())[:30])
  assert list(imagenet_files.begun(tmp_path)) == ["train-0"]


def test_rows_are_sorted_by_class_and_name(tmp_path, shards):
  world = imagenet.WORLD._replace(wnids=(FIRST, SECOND))
  imagenet_files.write_index(tmp_path, world, shards)
  index = imagenet_files.read_index(tmp_path)
  assert index.rows["train"].tolist() == [
    (0, 1, 0, 0),
    (0, 0, 1, 10),
    (1, 0, 0, 0),
  ]
  assert index.rows["validation"].tolist() == [(1, 2, 0, 0)]
  assert index.files == ("train-0", "train-1", "val-0")
  assert (index.dataset, index.wnids) == ("imagenet", (FIRST, SECOND))
  imagenet_files.remove_index(tmp_path)
  with pytest.raises(DataError, match="preparation was interrupted"):
    imagenet_files.read_index(tmp_path)


def test_an_image_that_is_there_twice_is_named(tmp_path, shards):
  twice = [*shards, shard(tmp_path, "train-2", ["a_1"], [FIRST])]
  with pytest.raises(DataError, match="has a_1 twice in its train split"):
    imagenet_files.write_index(tmp_path, imagenet.WORLD, twice)


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
def test_what_has_changed_is_noticed(tmp_path, shards, harm, said):
  imagenet_files.write_index(tmp_path, imagenet.WORLD, shards)
  harm(tmp_path)
  with pytest.raises(DataError, match=said) as error:
    imagenet_files.read_index(tmp_path)
  assert error.value.fix == imagenet_files.REPAIR


def test_checksums_are_those_of_sha256sum(tmp_path):
  (tmp_path / "file").write_bytes(b"abc")
  assert imagenet_files.sha256(tmp_path / "file") == (
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
  )
