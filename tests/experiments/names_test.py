"""What a command line names: RUN, images, and the classes they show."""

import dataclasses
import os
from pathlib import Path

from absl.flags import FlagValues
import pytest
from support import command, tiny

from experiments import names
import mnemonics_jax
from mnemonics_jax.errors import UserError


def test_run_is_a_directory(tmp_path, monkeypatch):
  assert names.run_directory([str(tmp_path), "more"], "") == tmp_path
  monkeypatch.setenv("HOME", str(tmp_path))
  (tmp_path / "run").mkdir()
  assert names.run_directory(["~/run"], "") == tmp_path / "run"
  with pytest.raises(UserError, match="RUN is missing; write how to use it"):
    names.run_directory([], "how to use it")
  (tmp_path / "file").touch()
  for name in ("file", "nothing", "~nobody/run"):
    with pytest.raises(UserError, match=f"no directory .*{name}"):
      names.run_directory([str(tmp_path / name)], "")


def test_flags_choose_seed_and_phase(monkeypatch):
  asked = []
  monkeypatch.setattr(
    mnemonics_jax.Learner, "load", lambda path, **which: asked.append(which)
  )
  for given in ({}, {"seed": "3", "phase": "0"}):
    values = FlagValues()
    names.define(values, "seed", "phase", "network")
    names.load(Path("run"), command.parsed(values, **given))
  none = {"network": None, "seed": None, "phase": None}
  assert asked == [none, none | {"seed": 3, "phase": 0}]


CLASSES = dict.fromkeys(["cat", "dog"])


@pytest.fixture
def home(tmp_path, monkeypatch):
  for name in (
    *("val/dog/b.PNG", "val/dog/a.jpg", "val/cat/old/c.webp", "~me.png"),
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
    for picture in names.pictures(arguments, CLASSES)
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
  """A single file may be looked at for its own sake, and be called anything."""
  assert found("val/dog/a.jpg", "val/notes.txt", "~me.png") == [
    ("val/dog/a.jpg", None), ("val/notes.txt", None), ("~me.png", None)
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


def renamed(given, classes=None, title="pets", learned=()):
  dataset = tiny.dataset(classes=3)
  if classes is not None:
    dataset = dataclasses.replace(dataset, class_names=classes)
  return names.rename_classes(dataset, given, title, learned)


def test_a_file_names_directories(tmp_path):
  path = tmp_path / "names.txt"
  path.write_text("a tench\n\n  b,  a fish \nc\tgreat white shark\n")
  assert names.read_class_names(path) == {
    "a": "tench", "b": "a fish", "c": "great white shark"
  }  # fmt: skip


def test_a_line_without_a_name_is_told(tmp_path):
  path = tmp_path / "names.txt"
  path.write_text("a tench\nb\n")
  with pytest.raises(UserError, match="line 2"):
    names.read_class_names(path)
  with pytest.raises(UserError, match="cannot be read"):
    names.read_class_names(tmp_path / "none")


def test_classes_without_a_name_keep_their_directory():
  dataset = renamed({"class 1": "cat"})
  assert dataset.class_names == ("class 0", "cat", "class 2")
  assert dataset.name == "pets"


def test_equal_names_are_told_apart():
  dataset = renamed({"class 0": "crane", "class 2": "crane"})
  assert dataset.class_names == (
    "crane (class 0)", "class 1", "crane (class 2)",
  )  # fmt: skip


def test_imagenet_is_known():
  """Of ImageNet's list: the first, a middle and the last of its 1,000."""
  ids = ("n01440764", "n02123045", "n15075141")
  words = ("tench", "tabby", "toilet tissue")
  assert renamed({}, ids).class_names == words
  assert renamed({"n02123045": "cat"}, ids).class_names[1] == "cat"
  # A folder that has other classes, too, is not ImageNet.
  assert renamed({}, ("n01440764", "n02123045", "dog")).class_names[0] == ids[0]


def test_learned_classes_keep_the_names_they_have():
  learned = ("tench", "maillot (n03710721)", "n02123045", "pet")
  assert names.folders_of(learned, {"cat": "pet"}) == {
    "n01440764": "tench",
    "n03710721": "maillot (n03710721)",
    "cat": "pet",
    **{name: name for name in learned},
  }
  ids = ("n01440764", "n02123045", "n03710721")
  known = renamed({}, ids, learned=learned).class_names
  assert known == ("tench", "n02123045", "maillot (n03710721)")
  # Among other folders, too.
  mixed = renamed({}, ("n01440764", "dog", "owl"), learned=learned)
  assert mixed.class_names == ("tench", "dog", "owl")
