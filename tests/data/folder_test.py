"""Image directories: kinds of images, layouts, and what is wrong with them."""

import os
from pathlib import Path
import shutil

import numpy as np
from PIL import Image
import pytest
from support.data_files import BLUE, RED, save_image, write_bomb, write_folder

from mnemonics_jax import data


@pytest.fixture
def root(tmp_path):
  return write_folder(tmp_path / "d")


def load(root, **options):
  options = {"image_size": 8, "cache_dir": root.parent / "cache"} | options
  return data.load("folder", root, **options)


def test_train_and_val(root):
  dataset = load(root)
  assert dataset.class_names == ("cat", "dog")
  assert dataset.train_labels.tolist() == [0] * 5 + [1] * 5
  assert dataset.test_labels.tolist() == [0, 1]
  assert dataset.train_images.shape == (10, 8, 8, 3)
  np.testing.assert_array_equal(dataset.train_images[:5], [[[RED] * 8] * 8] * 5)
  np.testing.assert_array_equal(dataset.test_images[1], [[BLUE] * 8] * 8)
  assert dataset.notes == ()


def test_other_suffixes_are_mentioned(root):
  for name in ("a.tif", "b.TIF", "c.gif", "d", ".hidden.tif"):
    (root / "train" / "cat" / name).touch()
  (note,) = load(root).notes
  assert note.startswith("4 files are left out for their suffix: 2 .tif, 1 ")
  assert ".gif" in note and "without" in note and ".webp" in note
  (root / "val" / "dog" / "e.heic").touch()  # And from the cache.
  assert "5 files are left out" in load(root).notes[0]


def test_a_val_that_is_train_is_mentioned(root):
  shutil.rmtree(root / "val")
  (root / "val").symlink_to("train")
  (note,) = load(root).notes
  assert note.startswith("val/ is the same directory as train/")


def test_second_load_decodes_nothing(root, monkeypatch):
  first = load(root)
  monkeypatch.setattr("mnemonics_jax.data.reading.decode", None)
  np.testing.assert_array_equal(load(root).train_images, first.train_images)


def test_test_directory_stands_in_for_val(root):
  (root / "val").rename(root / "test")
  assert load(root).test_labels.tolist() == [0, 1]


def test_classes_without_train_directory(root):
  dataset = load(root / "train", val_fraction=0.4)
  assert dataset.class_names == ("cat", "dog")
  assert dataset.train_labels.tolist() == [0] * 3 + [1] * 3


def test_held_out_fraction(root):
  for path in (root / "val").glob("*/*"):
    path.unlink()
  for path in ("val/cat", "val/dog", "val"):
    (root / path).rmdir()
  for i in range(10):  # Each image its own grey level, so that it is known.
    for name in ("cat", "dog"):
      save_image(root / "train" / name / f"{i}.png", (i * 20 + 10,) * 3)

  def held(**options):
    dataset = load(root, **options)
    train = dataset.train_images[dataset.train_labels == 0][:, 0, 0, 0]
    test = dataset.test_images[dataset.test_labels == 0][:, 0, 0, 0]
    assert sorted([*train, *test]) == [i * 20 + 10 for i in range(10)]
    return test.tolist()

  assert len(held(val_fraction=0.3)) == 3
  assert len(held(val_fraction=0.01)) == 1
  assert len(held(val_fraction=0.99)) == 9
  assert held() == held(cache_dir=root.parent / "other")
  assert len({tuple(held(seed=seed)) for seed in range(8)}) > 3
  before = set(held(val_fraction=0.3))
  # Removing a training image does not reshuffle the others.
  gone = next(i for i in range(10) if i * 20 + 10 not in before)
  (root / f"train/cat/{gone}.png").unlink()
  dataset = load(root, val_fraction=0.3)
  test = dataset.test_images[dataset.test_labels == 0][:, 0, 0, 0]
  assert set(test.tolist()) == before


@pytest.mark.parametrize(
  "name",
  ["a.PNG", "a.jpg", "a.JPEG", "a.Jpeg", "a.bmp", "a.webp", "deep/a.png"],
)
def test_suffixes_in_any_case(root, name):
  save_image(root / "train/cat" / name)
  assert np.bincount(load(root).train_labels).tolist() == [6, 5]


def test_hidden_and_other_files_are_not_images(root):
  for name in (".hidden.png", "._a.jpg", "notes.txt", ".checkpoints/0.png"):
    path = root / "train/cat" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("no image")
  (root / "train/.cache").mkdir()
  assert load(root, strict=True).train_labels.tolist() == [0] * 5 + [1] * 5


def damage(root: Path) -> dict[str, str]:
  """Adds unreadable files to a class; returns their names and reasons."""
  cat = root / "train/cat"
  (cat / "empty.png").touch()
  (cat / "text.jpg").write_text("hello")
  whole = save_image(cat / "cut.jpg", size=(200, 200)).read_bytes()
  (cat / "cut.jpg").write_bytes(whole[: len(whole) // 2])
  write_bomb(cat / "bomb.png", 60000, 60000)
  write_bomb(cat / "large.png", 10000, 10000)
  write_bomb(cat / "wide.png", 1 << 30, 1)
  (cat / "dangling.png").symlink_to("nowhere.png")
  (cat / "loop.png").symlink_to("loop.png")
  os.mkfifo(cat / "pipe.png")
  Image.new("RGB", (9, 9)).save(cat / "tiff.png", format="TIFF")
  (cat / "new\nline \udcff.png").write_bytes(b"x")
  return {
    "empty.png": "not a PNG",
    "text.jpg": "not a PNG",
    "cut.jpg": "truncated",
    "bomb.png": "pixels",
    "large.png": "10000×10000 pixels are too many",
    "wide.png": "pixels",
    "dangling.png": "",
    "loop.png": "",
    "pipe.png": "not a regular file",
    "tiff.png": "not a PNG",
    "new\\nline \\udcff.png": "not a PNG",
  }


def test_unreadable_files_are_listed_and_skipped(root):
  reasons = damage(root)
  dataset = load(root)
  assert dataset.train_labels.tolist() == [0] * 5 + [1] * 5
  assert len(dataset.notes) == len(reasons)
  for name, reason in reasons.items():
    (note,) = [n for n in dataset.notes if f"train/cat/{name}:" in n]
    assert reason in note
    assert note.isprintable()
  assert load(root).notes == dataset.notes  # From the cache too.


def test_strict_makes_them_fatal(root):
  load(root, strict=True)
  reasons = damage(root)
  for _ in range(2):
    with pytest.raises(data.DataError, match="leave out `strict`") as error:
      load(root, strict=True)
    for name in reasons:
      assert name in str(error.value)
    load(root)


def test_links(root):
  """A class may be a link; links that lead in circles are not followed."""
  (root / "train/cat/loop").symlink_to(root / "train")
  (root / "train/self").symlink_to(root / "train")
  (root / "train/parent").symlink_to("..")
  (root / "train/nothing").symlink_to("nothing")
  elsewhere = root.parent / "elsewhere"
  (root / "train/dog").rename(elsewhere)
  (root / "train/dog").symlink_to(elsewhere)
  dataset = load(root)
  assert dataset.class_names == ("cat", "dog")
  assert np.bincount(dataset.train_labels).tolist() == [5, 5]


@pytest.mark.parametrize(
  ("name", "shown"),
  [
    ("猫 ñ", "猫 ñ"),
    ("<script>", "<script>"),
    ("a\x1b[31m", "a\\x1b[31m"),
    ("\udcff", "\\udcff"),
  ],
)
def test_class_names_are_printable(root, name, shown):
  for split in ("train", "val"):
    save_image(root / split / name / "a.png", (9, 9, 9))
  assert shown in load(root).class_names
  assert shown in load(root).class_names  # From the cache too.


@pytest.mark.parametrize(
  ("options", "named"),
  [
    ({"image_size": 0}, "`image_size=0`"),
    ({"image_size": -5}, "`image_size=-5`"),
    ({"image_size": 10**6}, "`image_size=1000000`"),
    ({"val_fraction": 0.0}, "`val_fraction=0.0`"),
    ({"val_fraction": 1.0}, "`val_fraction=1.0`"),
    ({"val_fraction": float("nan")}, "`val_fraction=nan`"),
  ],
)
def test_bad_options(root, options, named):
  with pytest.raises(data.DataError, match=named) as refused:
    load(root, **options)
  assert refused.value.field in options


def test_missing_directory():
  with pytest.raises(data.DataError, match="`data_dir` is missing"):
    data.load("folder")


def test_what_is_too_large_for_memory_is_read_later(root, monkeypatch):
  pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2}
  monkeypatch.setattr(os, "sysconf", pages.__getitem__)
  # 12 images of 8×8×3 bytes twice are 4,608 bytes, half of two pages 4,096.
  later = load(root)
  assert isinstance(later.train_images, data.images.Stored)
  kept = list((root.parent / "cache").iterdir())
  assert [entry.name.split("-")[0] for entry in kept] == ["folder_index"]
  assert isinstance(load(root, stream="never").train_images, np.ndarray)
  pages["SC_PHYS_PAGES"] = 1
  with pytest.raises(data.DataError, match=r"12 images of .* need") as refused:
    load(root, stream="never")
  assert refused.value.field == "stream"
  pages["SC_PHYS_PAGES"] = 3
  assert isinstance(load(root).train_images, np.ndarray)
  later = load(root, stream="always")
  assert isinstance(later.train_images, data.images.Stored)


def test_images_that_are_read_later_are_the_same(root, tmp_path):
  """With what is skipped, and the checksum that a run is known by."""
  (root / "train/cat/text.png").write_text("no image")
  _cut_short(root / "train/cat/cut.jpg")
  now, later = load(root), load(root, stream="always")
  for split in ("train", "test"):
    images = getattr(later, f"{split}_images")
    np.testing.assert_array_equal(
      np.asarray(images), getattr(now, f"{split}_images")
    )
    rows = np.array([1, 0, 1])
    view = data.images.training_view(images, rows, seed=0, epoch=1)
    np.testing.assert_array_equal(view, np.asarray(images)[rows])
  for field in ("train_labels", "test_labels", "class_names", "notes"):
    np.testing.assert_array_equal(getattr(later, field), getattr(now, field))
  assert "cut.jpg: image file is truncated" in later.notes[0]
  assert "text.png: not a PNG" in later.notes[1]
  assert later.checksum == now.checksum
  # Another file is another data set.
  save_image(root / "train/cat/0.png", BLUE)
  assert load(root, stream="always").checksum == load(root).checksum
  assert load(root).checksum != later.checksum


def _cut_short(image):
  Image.effect_noise((64, 64), 90).save(image)
  image.write_bytes(image.read_bytes()[:-1000])


def test_a_second_start_decodes_nothing(root, monkeypatch):
  (root / "train/cat/text.png").write_text("no image")
  first = load(root, stream="always", val_fraction=0.3)
  monkeypatch.setattr("mnemonics_jax.data.reading.decode", None)
  again = load(root, stream="always", val_fraction=0.3)
  assert again.checksum == first.checksum and again.notes == first.notes
  # How it is split does not matter to what is known of the files.
  load(root, stream="always", val_fraction=0.5)


def test_a_file_that_changes_meanwhile_is_named(root):
  later = load(root, stream="always")
  pixels = np.asarray(later.train_images)
  image = root / "train/cat/0.png"
  save_image(image, BLUE)
  with pytest.raises(data.DataError, match=r"cat/0\.png has changed .*pixels"):
    np.asarray(later.train_images)
  _cut_short(image)
  with pytest.raises(
    data.DataError, match=r"cat/0\.png has changed .*truncated.*run it again"
  ):
    np.asarray(later.train_images)
  assert len(pixels) == len(later.train_images)


def test_progress(root):
  calls = []
  load(root, report=calls.append)
  assert calls == [(i + 1, 12) for i in range(12)]
