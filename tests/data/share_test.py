"""Processes that read a data set together; here they are threads."""

from concurrent.futures import ThreadPoolExecutor
import contextlib
import errno
import shutil
import threading

import numpy as np
from PIL import Image
import pytest
from support import data_files

from mnemonics_jax import data
from mnemonics_jax.data import cache, cifar100
from mnemonics_jax.data import share as share_lib
from mnemonics_jax.data.reading import decode


def in_processes(count, work):
  """What `work(share)` gives or raises in each of `count` processes."""
  barrier, table = threading.Barrier(count, timeout=60), [None] * count

  def process(index):
    def all_gather(array):
      table[index] = np.array(array)
      barrier.wait()
      everything = np.stack(table)
      barrier.wait()
      return everything

    try:
      return work(data.Share(index, count, all_gather))
    except data.DataError as error:
      return error

  with ThreadPoolExecutor(count) as pool:
    return list(pool.map(process, range(count)))


@pytest.fixture
def root(tmp_path):
  """Images that differ, and one that cannot be read."""
  root = data_files.write_folder(tmp_path / "images")
  for i in range(7):
    data_files.save_image(root / f"train/cat/{i}.png", (i * 30, 9, 9))
  (root / "train/dog/broken.png").write_bytes(b"no image")
  return root


def load(root, share=data.Share(), name="cache"):
  where = root.parent / f"{name}_{share.index}"
  return data.load("folder", root, image_size=8, share=share, cache_dir=where)


def assert_equal(one, other):
  assert one.notes == other.notes
  for name in ("train_images", "train_labels", "test_images", "test_labels"):
    np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("block", [1, 2**26])
def test_each_process_decodes_its_share_and_has_all(
  root, monkeypatch, count, block
):
  alone = load(root, name="alone")
  decoded = []
  monkeypatch.setattr(share_lib, "_BLOCK_BYTES", block)
  monkeypatch.setattr(
    "mnemonics_jax.data.reading.decode",
    lambda path, shape: decoded.append(path) or decode(path, shape),
  )
  for dataset in in_processes(count, lambda share: load(root, share)):
    assert_equal(dataset, alone)
  assert len(decoded) == len(set(decoded)) == 15
  assert "unreadable train/dog/broken.png" in alone.notes[0]


def test_a_cache_that_one_process_lacks_is_made_again_by_all(root):
  alone = load(root)  # In the cache of process 0.
  for dataset in in_processes(2, lambda share: load(root, share)):
    assert_equal(dataset, alone)


def test_trouble_of_one_process_is_that_of_all(root, monkeypatch):
  def fail(path, shape):
    if path.name == "6.png":
      raise OSError(errno.EIO, "Input/output error")
    return decode(path, shape)

  monkeypatch.setattr("mnemonics_jax.data.reading.decode", fail)
  errors = in_processes(2, lambda share: load(root, share))
  assert all("6.png cannot be read now" in str(error) for error in errors)
  assert str(errors[0]) == str(errors[1])
  for error in errors:  # Of another process, too.
    assert error.field == "data_dir"
    assert error.fix == "try again when the disk answers"


def test_an_unforeseen_error_of_one_process_ends_the_others():
  def fail(share):
    with contextlib.suppress(RuntimeError), share.relay_errors():
      if share.index:
        raise RuntimeError("out of luck")
      share.all_true(True)

  relayed, _ = in_processes(2, fail)
  assert "Another process failed: RuntimeError('out of luck')" in str(relayed)


def test_long_errors_keep_their_fix():
  def fail(share):
    with share.relay_errors():
      if share.index:
        raise data.DataError("data_dir", "é" * 9999, "be brief")
      share.all_true(True)

  relayed, own = in_processes(2, fail)
  assert len(own.problem) == 9999 and 1000 < len(relayed.problem) < 2048
  assert relayed.fix == own.fix == "be brief"


@pytest.mark.parametrize("lost", [0, 1])
def test_a_directory_that_one_process_lacks_is_told_by_all(root, lost):
  roots = [root, root]
  roots[lost] = root.parent / "nowhere"
  errors = in_processes(2, lambda share: load(roots[share.index], share))
  assert all("nowhere` does not exist; name one" in str(e) for e in errors)


def test_processes_that_see_other_files_are_told(root, tmp_path):
  """As many, but one has another name."""
  other = shutil.copytree(root, tmp_path / "other")
  (other / "train/cat/6.png").rename(other / "train/cat/7.png")
  roots = [root, other]
  errors = in_processes(2, lambda share: load(roots[share.index], share))
  assert all("other files on another machine" in str(e) for e in errors)


def test_a_common_cache_is_written_once(root, monkeypatch):
  written, write = [], cache._write
  monkeypatch.setattr(
    cache, "_write", lambda *a: written.append(a[0]) or write(*a)
  )
  common = root.parent / "cache"
  read = lambda share: data.load(
    "folder", root, image_size=8, share=share, cache_dir=common
  )
  in_processes(3, read)
  assert len(written) == 1
  in_processes(3, read)
  assert len(written) == 1


def test_records_are_decoded_by_shares(tmp_path, monkeypatch):
  path = tmp_path / "3.0.2"
  data_files.write_tfds(path, data_files.cifar_arrays())
  alone = cifar100.read_tfds(path)
  opened, open_image = [], Image.open
  monkeypatch.setattr(
    Image, "open", lambda *a, **k: opened.append(1) or open_image(*a, **k)
  )
  for found in in_processes(2, lambda s: cifar100.read_tfds(path, share=s)):
    assert found.class_names == alone.class_names
    for split in ("train", "test"):
      for array, expected in zip(
        getattr(found, split), getattr(alone, split), strict=True
      ):
        np.testing.assert_array_equal(array, expected)
  assert len(opened) == len(alone.train.images) + len(alone.test.images)


def test_other_forms_of_cifar_are_told(tmp_path):
  arrays = data_files.cifar_arrays()
  data_files.write_tfds(tmp_path / "0/3.0.2", arrays)
  data_files.write_official(tmp_path / "1/cifar-100-python", arrays)
  errors = in_processes(
    2, lambda s: data.load("cifar100", tmp_path / str(s.index), share=s)
  )
  assert all("another form of CIFAR-100" in str(error) for error in errors)
