"""Broken CIFAR-100, given to the commands that should read them.

Each gets one sentence with the flag and the fix, exit code 2, and leaves
nothing behind; what only looks odd is read.
"""

import functools
import os
import re

import pytest
from support import command, data_files

from mnemonics_jax.data import cifar100

# CIFAR-100 as official files and as TFDS prepares it.


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
  root = tmp_path_factory.mktemp("cifar")
  arrays = data_files.cifar_arrays()
  md5 = data_files.write_official(root / "cifar-100-python", arrays)
  data_files.write_archive(
    root / "cifar-100-python.tar.gz", root / "cifar-100-python"
  )
  data_files.write_tfds(root / "cifar100/3.0.2", arrays)
  return root, md5


def scribble(path, start, length):
  with path.open("r+b") as file:
    file.seek(start)
    file.write(b"\xff" * length)


def no_files(root):
  for path in root.iterdir():
    path.unlink()


def text(root):
  (root / "cifar-100-python.tar.gz").write_text("hello")


def cut_archive(root):
  path = root / "cifar-100-python.tar.gz"
  os.truncate(path, path.stat().st_size // 2)


def damaged_archive(root):
  path = root / "cifar-100-python.tar.gz"
  scribble(path, path.stat().st_size // 2, 1 << 17)


def other_files(root):
  (root / "test").write_bytes((root / "train").read_bytes())


def no_names(root):
  (root / "meta").unlink()


def missing_shard(root):
  (root / "cifar100-train.tfrecord-00001-of-00002").unlink()


def missing_split(root):
  (root / "cifar100-test.tfrecord-00000-of-00001").unlink()


def cut_records(root):
  path = root / "cifar100-test.tfrecord-00000-of-00001"
  os.truncate(path, path.stat().st_size - 1000)


def damaged_image(root):
  # Within the first image, which has about 3,200 bytes.
  scribble(root / "cifar100-test.tfrecord-00000-of-00001", 1000, 9)


def missing_labels(root):
  (root / "label.labels.txt").unlink()


def too_few_labels(root):
  (root / "label.labels.txt").write_text("\n".join(data_files.CLASSES[:99]))


def repeated_labels(root):
  (root / "label.labels.txt").write_text("\n".join(["same"] * 100))


CIFAR = [
  (no_files, "archive", r"--data_dir=here has no CIFAR-100.*--download"),
  (text, "archive", r"not a complete archive.*toronto"),
  (cut_archive, "archive", r"not a complete archive.*toronto"),
  (damaged_archive, "archive", r"not a complete archive.*toronto"),
  (other_files, "official", r"here/test is not the official file.*new copy"),
  (no_names, "official", r"has no file meta; put a complete copy"),
  (missing_shard, "tfds", r"1 of 2 files of its train split; copy"),
  (missing_split, "tfds", r"has no test split.*prepare"),
  (cut_records, "tfds", r"damaged .*truncated.*make it again"),
  (damaged_image, "tfds", r"damaged .*make it again"),
  (missing_labels, "tfds", r"damaged .*label\.labels\.txt.*make it again"),
  (too_few_labels, "tfds", r"train labels are 0\.\.99, expected 0\.\.98"),
  (repeated_labels, "tfds", r"two classes have the same name"),
]


def call_cifar(directory, originals, monkeypatch):
  _, md5 = originals
  small = functools.partial(
    cifar100.load, md5=md5, per_class=data_files.PER_CLASS
  )
  monkeypatch.setattr(cifar100, "load", small)
  return command.call(
    "cifar", "--data_dir=here", "--phases=1", "--memory=per_class:1",
    cwd=directory,
  )  # fmt: skip


def copy(originals, kind, target):
  target.mkdir()
  source = {
    "archive": originals[0],
    "official": originals[0] / "cifar-100-python",
    "tfds": originals[0] / "cifar100/3.0.2",
  }[kind]
  for path in source.iterdir():
    if path.is_file():
      (target / path.name).write_bytes(path.read_bytes())


@pytest.mark.parametrize(
  "damage, kind, sentence", CIFAR, ids=lambda v: getattr(v, "__name__", "")
)
def test_broken_cifar(tmp_path, originals, monkeypatch, damage, kind, sentence):
  copy(originals, kind, tmp_path / "here")
  damage(tmp_path / "here")
  outcome = call_cifar(tmp_path, originals, monkeypatch)
  command.assert_refused(outcome, "--data_dir")
  assert re.search(sentence, outcome.err, re.DOTALL), outcome.err


@pytest.mark.parametrize("kind", ["archive", "official", "tfds"])
def test_whole_cifar(tmp_path, originals, monkeypatch, kind):
  copy(originals, kind, tmp_path / "here")
  if kind == "tfds":  # Nothing but records and names is read.
    (tmp_path / "here/dataset_info.json").write_text("{ broken")
  with pytest.raises(command.Accepted):
    call_cifar(tmp_path, originals, monkeypatch)


# Arrays given to the library.
