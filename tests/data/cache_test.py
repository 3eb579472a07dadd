"""The cache returns what was stored, or builds again; it never fails a run."""

import hashlib
import json
import os

import numpy as np
import pytest

from mnemonics_jax.data import cache
from mnemonics_jax.data.cache import cached
from mnemonics_jax.data.dataset import Dataset


def make(fill: int = 200) -> Dataset:
  images = np.arange(4 * 8 * 8 * 3).reshape(4, 8, 8, 3).astype(np.uint8)
  images[0] = fill
  labels = np.array([0, 1, 0, 1], np.int32)
  return Dataset(
    name="test",
    train_images=images,
    train_labels=labels,
    test_images=images[::-1],  # Not contiguous.
    test_labels=labels[::-1],
    class_names=("a", "<b>"),
    mean=(0.5,) * 3,
    std=(0.25,) * 3,
    notes=("a note",),
  )


@pytest.fixture
def source(tmp_path):
  path = tmp_path / "source.bin"
  path.write_bytes(b"data")
  return path


@pytest.fixture
def read(tmp_path, source):
  """Reads through a cache; `read.built` counts how often that had to build."""

  def read(identity="x", cache_dir=tmp_path / "c"):
    def build():
      read.built += 1
      return make()

    return cached(
      build, identity=("test", identity), files=[source], cache_dir=cache_dir
    )

  read.built = 0
  return read


def assert_equal(left: Dataset, right: Dataset) -> None:
  for name in ("train_images", "train_labels", "test_images", "test_labels"):
    a, b = getattr(left, name), getattr(right, name)
    np.testing.assert_array_equal(a, b)
    assert a.dtype == b.dtype
  for name in ("name", "class_names", "mean", "std", "notes"):
    assert getattr(left, name) == getattr(right, name)


def test_entries_of_earlier_versions_keep_their_names():
  name = hashlib.sha256(b'["test", "x"]').hexdigest()[:16]
  assert cache.digest(["test", "x"])[:16] == name
  assert cache._fingerprint([]) == hashlib.sha256(b"2").hexdigest()


def test_second_time_is_read_and_equal(read):
  for _ in range(2):
    assert_equal(read(), make())
  assert read.built == 1
  read("y")
  assert read.built == 2


@pytest.mark.parametrize("change", ["size", "time"])
def test_changed_source_replaces_its_entry(tmp_path, source, read, change):
  read()
  if change == "size":
    times = source.stat().st_atime_ns, source.stat().st_mtime_ns
    source.write_bytes(b"more data")
    os.utime(source, ns=times)
  else:
    os.utime(source, ns=(1, 1))
  read()
  assert read.built == 2
  assert len(list((tmp_path / "c").iterdir())) == 1


def change_meta(name, value):
  def change(entry):
    meta = json.loads((entry / "meta.json").read_text())
    assert meta["fields"][name] != value
    meta["fields"][name] = value
    (entry / "meta.json").write_text(json.dumps(meta))

  return change


DAMAGE = {
  "other mean": change_meta("mean", [0.5, 0.5, 0.4]),
  "other std": change_meta("std", [0.25, 0.25, 1e9]),
  "other names": change_meta("class_names", ["<b>", "a"]),
  "other name": change_meta("name", "tset"),
  "other notes": change_meta("notes", []),
  "other dtype": lambda entry: np.save(
    entry / "train_labels.npy", np.zeros(4, np.int64)
  ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed_and_repaired(tmp_path, read, damage):
  read()
  (entry,) = (tmp_path / "c").iterdir()
  DAMAGE[damage](entry)
  assert_equal(read(), make())
  assert read.built == 2
  read()
  assert read.built == 2


def test_unusable_cache_directory_is_not_fatal(tmp_path, read):
  (tmp_path / "file").touch()
  dataset = read(cache_dir=tmp_path / "file/below")
  np.testing.assert_array_equal(dataset.train_images, make().train_images)
  assert dataset.notes[0] == "a note"
  assert str(tmp_path / "file") in dataset.notes[1]


def test_failed_write_leaves_nothing(tmp_path, read, monkeypatch):
  def full(*_):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(np, "save", full)
  assert "No space left" in read().notes[1]
  assert list((tmp_path / "c").iterdir()) == []


def test_only_old_abandoned_directories_are_removed(tmp_path, read):
  cache_dir = tmp_path / "c"
  for name in ("old.tmp", "new.tmp", "old"):
    (cache_dir / name).mkdir(parents=True)
    if "old" in name:
      os.utime(cache_dir / name, (0, 0))
  read()
  names = {path.name for path in cache_dir.iterdir()}
  assert "old.tmp" not in names and {"new.tmp", "old"} <= names


def test_the_default_directory_is_that_of_the_user(tmp_path, read, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
  read(cache_dir=None)
  assert len(list((tmp_path / "xdg/mnemonics_jax").iterdir())) == 1
