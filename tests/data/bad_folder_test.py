"""Broken directories of images, given to the commands that should read them.

Each gets one sentence with the flag and the fix, exit code 2, and leaves
nothing behind; what only looks odd is read.
"""

import os
from pathlib import Path
import re

import pytest
from support import command, data_files
from support.data_files import save_image, write_bomb

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
  (
    fine,
    "--phases=3",
    "--phases=3 would leave phases without classes.*use --phases=1",
  ),
  (fine, "--memory=per_class:9", "smallest class has 5.*use per_class:5"),
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
