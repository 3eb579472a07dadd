"""Broken data, given to the commands that should read them.

Each gets one sentence with the flag and the fix, exit code 2, and leaves
nothing behind; what only looks odd is read.
"""

import functools
import os
from pathlib import Path
import re

import command
import data_files
from data_files import save_image, write_bomb
import jax
import numpy as np
import pytest

from mnemonics_jax import bilevel
from mnemonics_jax.data import cifar100

# Directories of images. Each function breaks one that was fine.


def empty_class(root):
  (root / "train/bird").mkdir()


def class_of_damaged_files(root):
  for split in ("train", "val"):
    (root / split / "bird").mkdir()
    (root / split / "bird/a.png").write_text("x")


def class_of_huge_images(root):
  for path in (root / "val/cat").iterdir():
    write_bomb(path, 60000, 60000)


def class_missing_in_val(root):
  save_image(root / "train/bird/a.png")


def class_missing_in_train(root):
  save_image(root / "val/bird/a.png")


def one_class(root):
  for split in ("train", "val"):
    (root / split / "dog").rename(root / f"{split}_dog")


def no_train(root):
  (root / "train").rename(root / "training")


def train_is_a_file(root):
  no_train(root)
  (root / "train").touch()


def flat_val(root):
  for name in ("cat", "dog"):
    (root / f"val/{name}/0.png").rename(root / f"val/{name}.png")
    (root / f"val/{name}").rmdir()


def one_image(root):
  (root / "val").rename(root / "other")
  for i in range(1, 5):
    (root / f"train/cat/{i}.png").unlink()


def no_directory(root):
  root.rename(root.parent / "gone")


def a_file(root):
  no_directory(root)
  root.touch()


def link_to_itself(root):
  no_directory(root)
  root.symlink_to(root)


def empty(root):
  no_directory(root)
  root.mkdir()


def black(root):
  for path in root.glob("train/*/*.png"):
    save_image(path, (0, 0, 0))


def zero_bytes(root):
  (root / "train/cat/0.png").write_bytes(b"")


def text_as_image(root):
  (root / "train/cat/0.png").write_text("hello")


def truncated_image(root):
  whole = save_image(root / "train/cat/0.png", size=(99, 99)).read_bytes()
  (root / "train/cat/0.png").write_bytes(whole[: len(whole) // 2])


def huge_image(root):
  write_bomb(root / "train/cat/0.png", 10000, 10000)


def dangling_link(root):
  (root / "train/cat/a.png").symlink_to("nowhere.png")


def image_linked_to_itself(root):
  (root / "train/cat/a.png").symlink_to("a.png")


def fine(_):
  pass


# What is broken, the flags besides --data, and what the sentence says.
FOLDERS = [
  (empty_class, "", r"bird has no image .*remove it"),
  (class_of_damaged_files, "", r"bird has no readable training.*bird/a\.png"),
  (class_of_huge_images, "", r"cat has no readable test image.*pixels"),
  (class_missing_in_val, "", "same classes.*bird.*add or remove"),
  (class_missing_in_train, "", "same classes.*bird.*add or remove"),
  (one_class, "", "1 class directories, at least 2.*sort the images"),
  (no_train, "", "has val/ but no train/; name"),
  (train_is_a_file, "", "has val/ but no train/; name"),
  (flat_val, "", "same classes.*--val_fraction"),
  (one_image, "", "cat has one readable image.*--val_fraction; add"),
  (no_directory, "", "does not exist; name"),
  (a_file, "", "is not a directory; name"),
  (link_to_itself, "", "name one with train/"),
  (empty, "", "0 class directories.*sort the images"),
  (black, "", "all train pixels are black; repair"),
  (zero_bytes, "--strict", r"train/cat/0\.png: not a PNG"),
  (text_as_image, "--strict", r"train/cat/0\.png: not a PNG"),
  (truncated_image, "--strict", r"train/cat/0\.png: .*truncated"),
  (huge_image, "--strict", r"train/cat/0\.png: 10000×10000 pixels are too"),
  (dangling_link, "--strict", r"train/cat/a\.png: not a regular file"),
  (image_linked_to_itself, "--strict", r"train/cat/a\.png: not a regular"),
  (fine, "--phases=3", "--phases=3 would leave phases without classes.*Use"),
  (fine, "--memory=per_class:9", "smallest class has 5.*Use per_class:5"),
]


def call_folder(directory: Path, *arguments: str) -> command.Outcome:
  return command.call(
    "folder", "--data=images", "--image_size=8", "--base_classes=1",
    "--phases=1", "--memory=per_class:1", *arguments, cwd=directory,
  )  # fmt: skip


@pytest.mark.parametrize(
  "damage, flag, sentence", FOLDERS, ids=lambda v: getattr(v, "__name__", "")
)
def test_broken_directories_of_images(tmp_path, damage, flag, sentence):
  damage(data_files.write_folder(tmp_path / "images"))
  outcome = call_folder(tmp_path, *flag.split())
  command.assert_refused(outcome, flag.partition("=")[0] or "--data")
  assert re.search(sentence, outcome.err, re.DOTALL), outcome.err


def test_a_directory_that_may_not_be_read(tmp_path, monkeypatch):
  """A stand-in for permissions, which do not stop the superuser."""
  data_files.write_folder(tmp_path / "images")
  walk = os.walk

  def denied(path, onerror):
    if Path(path).name == "dog":
      onerror(PermissionError(13, "Permission denied", str(path)))
    return walk(path, onerror=onerror)

  monkeypatch.setattr(os, "walk", denied)
  outcome = call_folder(tmp_path)
  command.assert_refused(
    outcome, "--data=images", "train/dog (Permission denied)", "check"
  )


def names_in_any_script(root):
  for split in ("train", "val"):
    (root / split / "cat").rename(root / split / "猫 ñ <b>")
    save_image(root / split / "猫 ñ <b>" / "Ünï \udcff.png")


def mixed_sizes(root):
  for i, size in enumerate([(1, 1), (3, 90), (200, 10)]):
    save_image(root / f"train/cat/{i}.png", size=size)


def no_val(root):
  (root / "val").rename(root.parent / "elsewhere")


def loops_of_links(root):
  (root / "train/cat/up").symlink_to(root / "train")
  (root / "train/self").symlink_to(root / "train")
  (root / "train/around").symlink_to("around")


@pytest.mark.parametrize(
  "change",
  [
    fine,
    names_in_any_script,
    mixed_sizes,
    no_val,
    loops_of_links,
    # Single images that cannot be read are skipped, and the run says so.
    zero_bytes,
    truncated_image,
    huge_image,
    dangling_link,
  ],
)
def test_odd_directories_of_images_are_read(tmp_path, change):
  change(data_files.write_folder(tmp_path / "images"))
  with pytest.raises(command.Accepted):
    call_folder(tmp_path)


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
  (no_names, "official", r"has no file meta; get a complete copy"),
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

BAD_PIXELS = {"nan": np.nan, "infinite": np.inf, "negative": -0.1, "8 bit": 255}


@pytest.mark.parametrize("kind", BAD_PIXELS)
@pytest.mark.parametrize("where", ["exemplars", "validation data"])
def test_pixels_that_are_not_in_the_unit_interval(where, kind):
  good = np.full((4, 2, 2, 3), 0.5, np.float32)
  bad = good.copy()
  bad[1, 0, 0, 0] = BAD_PIXELS[kind]
  labels = np.array([0, 1, 0, 1])
  exemplars, data = (bad, good) if where == "exemplars" else (good, bad)

  def apply_fn(variables, images):
    return images.reshape(len(images), -1) @ variables["params"]["w"]

  def optimize(exemplars, data):
    return bilevel.optimize_exemplars(
      jax.random.key(0),
      exemplars,
      {"params": {"w": np.zeros((12, 2), np.float32)}},
      data,
      apply_fn=apply_fn,
      config=bilevel.BilevelConfig(epochs=0),
    )

  with pytest.raises(ValueError, match=rf"{where}.* \[0, 1\]: divide"):
    optimize(bilevel.Exemplars(exemplars, labels), (data, labels))
  # Rows that are masked out may hold anything.
  mask = np.array([True, False, True, True])
  optimize(
    bilevel.Exemplars(exemplars, labels, mask),
    bilevel.Exemplars(data, labels, mask),
  )
