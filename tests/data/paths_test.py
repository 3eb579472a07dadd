"""Paths that take little memory are those that were put in."""

import os
from pathlib import Path

import pytest

from mnemonics_jax.data.folder import Paths

ROOT = Path("some/root")
# A name may be of bytes that are no text.
NAMES = ["cat/1.png", "cat/ä b/2.jpg", os.fsdecode(b"dog/\xff.bmp")]


@pytest.fixture
def paths():
  found = Paths(ROOT)
  found.extend(ROOT / name for name in NAMES[:1])
  found.extend(ROOT / name for name in NAMES[1:])
  return found


def test_they_are_a_sequence_of_paths(paths):
  expected = [ROOT / name for name in NAMES]
  assert list(paths) == expected and len(paths) == 3
  assert [paths[i] for i in (-1, 0, 2)] == [expected[i] for i in (-1, 0, 2)]
  assert paths[1:] == expected[1:] and paths[::-1] == expected[::-1]
  assert expected[1] in paths and ROOT / "cat" not in paths


@pytest.mark.parametrize("index", [3, -4])
def test_there_is_an_end(paths, index):
  with pytest.raises(IndexError):
    paths[index]


def test_there_may_be_none():
  assert list(Paths(ROOT)) == [] and not Paths(ROOT)


def test_what_is_elsewhere_is_refused(paths):
  with pytest.raises(ValueError, match="some/root"):
    paths.extend([Path("another/root/1.png")])
  assert len(paths) == 3
