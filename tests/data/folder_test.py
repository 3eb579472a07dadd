"""Image directories: what is listed and read, what is wrong with them, names."""

import os
from pathlib import Path
import re
import shutil

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
from PIL import Image
import pytest
from support import command
from support.data_files import BLUE, RED, save_image, write_bomb, write_folder

from mnemonics_jax import data
from mnemonics_jax.data.dataset import printable
from mnemonics_jax.data.folder import Paths, folder_names, odd, scan


@pytest.fixture
def root(tmp_path):
  return write_folder(tmp_path / "d")


def load(root, **options):
  options = {"image_size": 8, "cache_dir": root.parent / "cache"} | options
  return data.load("folder", root, **options)


# Which files are images.


def listed(root, *names):
  """What is listed of files with these names, which need no content."""
  for name in names:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).touch()
  listing = scan(root)
  files = [path.relative_to(root).as_posix() for path in listing.files]
  return listing, files


def test_files_are_sorted_by_split_class_and_name(tmp_path):
  listing, files = listed(
    tmp_path, "train/b/2.png", "train/b/10.jpg", "train/a/x/1.webp",
    "val/a/3.bmp", "val/b/4.jpeg", "train/a/.2.png", "train/a/notes.txt",
    "train/a/.old/3.png", "train/.c/5.png", "train/readme.md", "train/b/3.PNG",
  )  # fmt: skip
  assert listing.classes == ["a", "b"]
  assert files == [
    *("train/a/x/1.webp", "train/b/10.jpg", "train/b/2.png", "train/b/3.PNG"),
    *("val/a/3.bmp", "val/b/4.jpeg"),
  ]
  assert listing.labels.tolist() == [0, 1, 1, 1, 0, 1]
  assert listing.is_test.tolist() == [False] * 4 + [True] * 2


def test_without_train_the_directory_has_the_classes(tmp_path):
  listing, files = listed(tmp_path, "a/1.png", "b/2.png")
  assert files == ["a/1.png", "b/2.png"] and listing.is_test is None
  shutil.rmtree(tmp_path / "b")
  assert scan(tmp_path, least=1).classes == ["a"]


def test_names_that_make_one_doubt():
  assert odd(["cat", "dog"]) == ()
  (note,) = odd(["cat", "TRAIN", "val"])
  assert note.startswith("TRAIN and val are taken for classes")
  (note,) = odd([f"c{i}" for i in range(2001)])
  assert note.startswith("there are 2,001 class directories")


def test_names_are_printable():
  assert printable("猫 a\x1b[31m\udcff\n") == "猫 a\\x1b[31m\\udcff\\n"


def test_paths_that_take_little_memory_are_those_that_were_put_in():
  """A name may be of bytes that are no text."""
  place = Path("some/root")
  names = ["cat/1.png", "cat/ä b/2.jpg", os.fsdecode(b"dog/\xff.bmp")]
  expected, paths = [place / name for name in names], Paths(place)
  assert list(paths) == [] and not paths
  paths.extend(expected[:1])
  paths.extend(expected[1:])
  assert list(paths) == expected and len(paths) == 3
  assert [paths[i] for i in (-1, 0, 2)] == [expected[i] for i in (-1, 0, 2)]
  assert paths[1:] == expected[1:] and paths[::-1] == expected[::-1]
  assert expected[1] in paths and place / "cat" not in paths
  for index in (3, -4):
    with pytest.raises(IndexError):
      paths[index]
  with pytest.raises(ValueError, match="some/root"):
    paths.extend([Path("another/root/1.png")])


# What is read.


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


def test_test_directory_stands_in_for_val(root):
  (root / "val").rename(root / "test")
  assert load(root).test_labels.tolist() == [0, 1]


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


@pytest.mark.parametrize("stream", ["never", "always"])
def test_a_second_start_decodes_nothing(root, monkeypatch, stream):
  (root / "train/cat/text.png").write_text("no image")
  first = load(root, stream=stream, val_fraction=0.3)
  monkeypatch.setattr("mnemonics_jax.data.reading.decode", None)
  again = load(root, stream=stream, val_fraction=0.3)
  assert again.checksum == first.checksum and again.notes == first.notes
  if stream == "always":  # Checksums do not depend on the split.
    load(root, stream=stream, val_fraction=0.5)


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


# What is wrong with a directory is one sentence.


def rename(old, new):
  return lambda root: (root / old).rename(root / new)


def harm(name, content):
  return lambda root: (root / name).write_bytes(content)


def class_of_damaged_files(root):
  for split in ("train", "val"):
    (root / split / "bird").mkdir()
    (root / split / "bird/a.png").write_text("x")


def class_of_huge_images(root):
  for path in (root / "val/cat").iterdir():
    write_bomb(path, 60000, 60000)


def one_class(root):
  for split in ("train", "val"):
    (root / split / "dog").rename(root / f"{split}_dog")


def train_is_a_file(root):
  (root / "train").rename(root / "training")
  (root / "train").touch()


def one_image(root):
  (root / "val").rename(root / "other")
  for i in range(1, 5):
    (root / f"train/cat/{i}.png").unlink()


def instead(make):
  """Something else in the place of the directory."""

  def change(root):
    shutil.rmtree(root)
    make(root)

  return change


def black(root):
  for path in root.glob("train/*/*.png"):
    save_image(path, (0, 0, 0))


BROKEN = {
  "empty class": (
    lambda root: (root / "train/bird").mkdir(),
    r"bird has no image .*remove it",
  ),
  "class of damaged files": (
    class_of_damaged_files,
    r"bird has no readable training.*bird/a\.png",
  ),
  "class of huge images": (
    class_of_huge_images,
    r"cat has no readable test image.*pixels",
  ),
  "class missing in val": (
    lambda root: save_image(root / "train/bird/a.png"),
    "same classes.*bird.*add or remove",
  ),
  "class missing in train": (
    lambda root: save_image(root / "val/bird/a.png"),
    "same classes.*bird.*add or remove",
  ),
  "one class": (one_class, "1 class directories, at least 2.*sort the images"),
  "no train": (rename("train", "training"), "has val/ but no train/; name"),
  "train is a file": (train_is_a_file, "has val/ but no train/; name"),
  "flat val": (rename("val/dog", "val_dog"), "same classes.*`val_fraction`"),
  "one image": (one_image, "cat has one readable image.*`val_fraction`; add"),
  "no directory": (instead(lambda root: None), "does not exist; name"),
  "a file": (instead(Path.touch), "is not a directory; name"),
  "a link to itself": (
    instead(lambda root: root.symlink_to(root)),
    "name one with train/",
  ),
  "empty": (instead(Path.mkdir), "0 class directories.*sort the images"),
  "black": (black, "all train pixels are black; repair"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_directories_are_one_sentence(root, broken):
  change, said = BROKEN[broken]
  change(root)
  with pytest.raises(data.DataError) as error:
    load(root)
  assert error.value.field == "data_dir"
  assert re.search(said, str(error.value), re.DOTALL), error.value


def fine(_):
  pass


def odd_but_readable(root):
  """Names in any script, sizes of any kind, links in circles, a bad image."""
  for split in ("train", "val"):
    (root / split / "cat").rename(root / split / "猫 ñ <b>")
    save_image(root / split / "猫 ñ <b>" / "Ünï \udcff.png")
  for i, size in enumerate([(1, 1), (3, 90), (200, 10)]):
    save_image(root / f"train/dog/{i}.png", size=size)
  (root / "train/dog/up").symlink_to(root / "train")
  (root / "train/around").symlink_to("around")
  (root / "train/dog/3.png").write_text("hello")


COMMANDS = [
  (odd_but_readable, "", None),
  (rename("val", "elsewhere"), "", None),
  (instead(lambda root: None), "--data=d", "does not exist; name"),
  (one_image, "--data=d", "cat has one readable image.*--val_fraction; add"),
  (
    harm("train/cat/0.png", b"hello"),
    "--strict",
    r"unreadable files.*train/cat/0\.png: not a PNG",
  ),
  (fine, "--phases=3", "--phases=3 would leave phases without.*--phases=1"),
  (fine, "--memory=per_class:9", "smallest class has 5.*use per_class:5"),
]


@pytest.mark.parametrize("change, flag, said", COMMANDS)
def test_the_command_says_so_or_reads_it(root, change, flag, said):
  """Exit code 2 and nothing left behind, or training begins."""
  change(root)
  flags = [
    *("--data=d", "--image_size=8", "--base_classes=1", "--phases=1"),
    *("--memory=per_class:1", *flag.split()),
  ]
  if said is None:
    with pytest.raises(command.Accepted):
      command.call("folder", *flags, cwd=root.parent)
    return
  outcome = command.call("folder", *flags, cwd=root.parent)
  command.assert_refused(outcome, flag.partition("=")[0])
  assert re.search(said, outcome.err, re.DOTALL), outcome.err


def test_a_directory_that_may_not_be_read(root, monkeypatch):
  """A stand-in for permissions, which do not stop the superuser."""
  walk = os.walk

  def denied(path, onerror):
    if Path(path).name == "dog":
      onerror(PermissionError(13, "Permission denied", str(path)))
    return walk(path, onerror=onerror)

  monkeypatch.setattr(os, "walk", denied)
  with pytest.raises(
    data.DataError, match=r"train/dog \(Permission den.*check"
  ):
    load(root)


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


# Folders for classes: safe anywhere.


@pytest.mark.parametrize(
  ("name", "folder"),
  [
    ("cat", "cat"),
    ("Großer Hund 2.0", "Großer Hund 2.0"),
    ("..", "%2E%2E"),
    ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
    ("/root", "%2Froot"),
    ("C:\\x", "C%3A%5Cx"),
    (".hidden", "%2Ehidden"),
    ("end.", "end%2E"),
    (" padded ", "%20padded%20"),
    ("100%", "100%25"),
    ("a\0b\n", "a%00b%0A"),
    ("NUL", "%4EUL"),
    ("com1.txt", "%63om1.txt"),
    ("", "_"),
    (7, "7"),
    (("a", 1), "('a', 1)"),
    ("\udcff", "%ED%B3%BF"),
  ],
)
def test_by_hand(name, folder):
  assert folder_names([name]) == [folder]


def test_folders_differ_where_names_do_not():
  names = ["cat", "CAT", 1, "1", "cat~2"]
  assert folder_names(names) == ["cat", "CAT~2", "1", "1~2", "cat%7E2"]


@given(st.lists(st.text(), unique=True, max_size=5))
def test_any_texts(names):
  folders = folder_names(names)
  assert len({folder.casefold() for folder in folders}) == len(names)
  for folder in folders:
    assert folder.isprintable() and 0 < len(folder.encode()) < 120
    assert not set(folder) & set('/\\:*?"<>|') and folder[0] != "."


def test_long_names_keep_their_beginning():
  first, second = folder_names(["ü" * 300, "ü" * 299 + "x"])
  assert first != second and first.startswith("üüü")
  assert len(first.encode()) <= 100
