"""Images that a command names, and the classes that folders tell."""

import os

import pytest

from experiments import pictures
from mnemonics_jax.errors import UserError

CLASSES = dict.fromkeys(["cat", "dog"])


@pytest.fixture
def home(tmp_path, monkeypatch):
  for name in (
    *("val/dog/b.PNG", "val/dog/a.jpg", "val/cat/old/c.webp"),
    *("val/fox/d.png", "val/.hidden/e.png", "val/cat/.f.png", "val/notes.txt"),
  ):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
  monkeypatch.chdir(tmp_path)
  return tmp_path


def found(*arguments):
  return [
    (os.path.relpath(picture.path), picture.folder)
    for picture in pictures.find(arguments, CLASSES)
  ]


def test_images_of_a_folder_are_in_order_and_know_their_class(home):
  assert found("val") == [
    ("val/cat/old/c.webp", "cat"),  # The nearest folder that names one.
    ("val/dog/a.jpg", "dog"),
    ("val/dog/b.PNG", "dog"),
    ("val/fox/d.png", None),
  ]


def test_the_folder_itself_may_name_the_class(home, monkeypatch):
  assert found("val/dog") == [
    ("val/dog/a.jpg", "dog"),
    ("val/dog/b.PNG", "dog"),
  ]
  monkeypatch.chdir(home / "val/dog")
  assert [folder for _, folder in found(".")] == ["dog", "dog"]


def test_a_file_says_nothing_of_its_class(home):
  """Whoever names one file may look at it for its own sake."""
  assert found("val/dog/a.jpg", "val/notes.txt") == [
    ("val/dog/a.jpg", None), ("val/notes.txt", None)
  ]  # fmt: skip


@pytest.mark.parametrize("name", ["nothing", "val/.hidden/deep", "empty"])
def test_what_is_not_there_is_named(home, name):
  (home / "empty").mkdir()
  with pytest.raises(UserError, match=name):
    found(name)


def test_a_folder_that_cannot_be_read_is_named(home, monkeypatch):
  def denied(path):
    raise PermissionError(13, "Permission denied", str(path))

  monkeypatch.setattr(os, "scandir", denied)  # Root may read everything.
  with pytest.raises(
    UserError, match=r"val cannot be read \(Permission denied"
  ):
    found("val")
