"""Which files of a directory are images, by split and class."""

import pytest

from mnemonics_jax.data import DataError
from mnemonics_jax.data.dataset import printable
from mnemonics_jax.data.folder import odd, scan


@pytest.fixture
def root(tmp_path):
  def make(*names):
    for name in names:
      path = tmp_path / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.touch()
    return tmp_path

  return make


def names(listing):
  return [path.relative_to(listing.root).as_posix() for path in listing.files]


def test_files_are_sorted_by_split_class_and_name(root):
  listing = scan(root("train/b/2.png", "train/b/10.jpg", "train/a/x/1.webp",
                      "val/a/3.bmp", "val/b/4.jpeg"))  # fmt: skip
  assert listing.classes == ["a", "b"]
  assert names(listing) == [
    *("train/a/x/1.webp", "train/b/10.jpg", "train/b/2.png"),
    *("val/a/3.bmp", "val/b/4.jpeg"),
  ]
  assert listing.labels.tolist() == [0, 1, 1, 0, 1]
  assert listing.is_test.tolist() == [False] * 3 + [True] * 2


def test_without_train_the_directory_has_the_classes(root):
  listing = scan(root("a/1.png", "b/2.png"))
  assert names(listing) == ["a/1.png", "b/2.png"] and listing.is_test is None


def test_hidden_and_other_files_are_not_listed(root):
  listing = scan(root("a/1.png", "a/.2.png", "a/notes.txt", "a/.old/3.png",
                      "b/4.PNG", ".c/5.png", "readme.md"))  # fmt: skip
  assert names(listing) == ["a/1.png", "b/4.PNG"]


def test_links_in_circles_are_not_followed(root):
  path = root("train/a/1.png", "train/b/2.png")
  (path / "train/self").symlink_to(path / "train")
  (path / "train/a/up").symlink_to(path / "train")
  assert names(scan(path)) == ["train/a/1.png", "train/b/2.png"]


@pytest.mark.parametrize(
  "files, problem",
  [
    (["val/a/1.png"], "has val/ but no train/"),
    (["train/a/1.png"], "1 class directories, at least 2"),
    (["train/a/1.png", "train/b/x.txt"], "b has no image"),
    (
      ["train/a/1.png", "train/b/1.png", "val/a/1.png"],
      "only one of them has b",
    ),
  ],
)
def test_what_is_wrong_is_said(root, files, problem):
  with pytest.raises(DataError, match=problem):
    scan(root(*files))


def test_one_class_may_be_enough(root):
  assert scan(root("train/a/1.png"), least=1).classes == ["a"]


def test_a_file_and_nothing_are_no_directories(root):
  path = root("file")
  with pytest.raises(DataError, match="is not a directory"):
    scan(path / "file")
  with pytest.raises(DataError, match="does not exist"):
    scan(path / "nothing")


def test_names_that_make_one_doubt():
  assert odd(["cat", "dog"]) == ()
  (note,) = odd(["cat", "TRAIN", "val"])
  assert note.startswith("TRAIN and val are taken for classes")
  (note,) = odd([f"c{i}" for i in range(2001)])
  assert note.startswith("there are 2,001 class directories")


def test_names_are_printable():
  assert printable("猫 a\x1b[31m\udcff\n") == "猫 a\\x1b[31m\\udcff\\n"
