"""Classes are called what people call them."""

import dataclasses

import pytest
from support import tiny

from experiments import class_names
from mnemonics_jax.errors import UserError


def renamed(names, classes=None, title="pets", learned=()):
  dataset = tiny.dataset(classes=3)
  if classes is not None:
    dataset = dataclasses.replace(dataset, class_names=classes)
  return class_names.rename(dataset, names, title, learned)


def test_a_file_names_directories(tmp_path):
  path = tmp_path / "names.txt"
  path.write_text("a tench\n\n  b,  a fish \nc\tgreat white shark\n")
  names = class_names.read(path)
  assert names == {"a": "tench", "b": "a fish", "c": "great white shark"}


def test_a_line_without_a_name_is_told(tmp_path):
  path = tmp_path / "names.txt"
  path.write_text("a tench\nb\n")
  with pytest.raises(UserError, match="line 2"):
    class_names.read(path)
  with pytest.raises(UserError, match="cannot be read"):
    class_names.read(tmp_path / "none")


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
  found = class_names.folders(learned, {"cat": "pet"})
  assert found == {
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
