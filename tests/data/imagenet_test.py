"""A prepared ImageNet: its classes, and images that workers read."""

import dataclasses
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from support import imagenet

from mnemonics_jax import data, protocol
from mnemonics_jax.data import imagenet_classes, images
from mnemonics_jax.data.imagenet_classes import WORLDS
from mnemonics_jax.data.prepare_imagenet import prepare


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  source = imagenet.folder(tmp_path_factory.mktemp("source"))
  root = tmp_path_factory.mktemp("data")
  prepare(imagenet.WORLD, source, root, shard_bytes=2000)
  return root


def load(root, **options):
  return data.load("imagenet", root, image_size=16, **options)


def test_the_subset_has_the_classes_and_the_order_of_the_papers():
  # Drawn by a Mersenne Twister of Python's own, seeded and used as NumPy does.
  subset = WORLDS["imagenet_subset"]()
  assert (subset.wnids[0], subset.wnids[-1]) == ("n01514668", "n15075141")
  assert len(subset.wnids) == 100 and list(subset.wnids) == sorted(subset.wnids)
  learned = [subset.wnids[i] for i in protocol.class_order(100)]
  assert (learned[0], learned[-1]) == ("n03710193", "n02168699")
  # Not the order of the draw, which would have other base classes.
  every = imagenet_classes.all_wnids()
  drawn = [every[i] for i in protocol.class_subset(1000, 100)]
  assert (drawn[0], drawn[-1]) == ("n01729322", "n01689811")
  assert len({*drawn[:50]} & {*learned[:50]}) == 26


def test_labels_follow_the_sorted_classes(prepared):
  loaded = load(prepared, workers=0)
  assert loaded.class_names == imagenet.WNIDS
  assert loaded.train_labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
  assert loaded.test_labels.tolist() == [0, 0, 1, 1, 2, 2]
  assert loaded.image_shape == (16, 16, 3)
  assert data.stream(loaded, phases=2).class_sizes == (4, 4, 4)


def test_workers_change_nothing_and_end_with_the_data(prepared):
  alone = load(prepared, workers=0)
  others = load(prepared, workers=2)
  assert alone.checksum == others.checksum
  rows = np.random.default_rng(0).integers(0, 12, 50)
  for both in zip(
    *(
      (
        images.training_view(each.train_images, rows, seed=2**64 - 1, epoch=3),
        images.training_view(each.train_images[::-1], rows, seed=0, epoch=0),
        np.asarray(each.test_images),
      )
      for each in (alone, others)
    ),
    strict=True,
  ):
    np.testing.assert_array_equal(*both)
  started = psutil.Process().children()
  assert sum("data.workers" in " ".join(p.cmdline()) for p in started) == 2
  del others
  assert psutil.wait_procs(started, timeout=20)[1] == []


def test_what_a_worker_finds_wrong_is_one_sentence(prepared, tmp_path):
  loaded = load(prepared, workers=1)
  store = loaded.train_images.store
  wrong = store.table.copy()
  wrong["crc"][5] ^= 1
  broken = dataclasses.replace(store, table=wrong)
  with pytest.raises(
    data.DataError, match=r"image . of .*its checksum is wrong"
  ):
    broken.read(np.arange(12))
  # The worker goes on.
  assert broken.read(np.array([0, 1])).shape == (2, 16, 16, 3)


def test_a_worker_that_is_killed_is_told_of(prepared):
  loaded = load(prepared, workers=1)
  np.asarray(loaded.test_images[:1])
  (worker,) = psutil.Process().children()
  worker.kill()
  with pytest.raises(data.DataError, match=r"has ended \(exit code -9\)"):
    np.asarray(loaded.test_images[:1])


def test_workers_outlast_signals_and_end_with_their_parent(prepared):
  """Ctrl-C reaches all processes; who learns finishes a step, and still reads."""
  code = (
    "import sys, time; import numpy as np; from mnemonics_jax import data\n"
    f"d = data.load('imagenet', {str(prepared)!r}, image_size=16, workers=1)\n"
    "np.asarray(d.test_images); print('ready', flush=True); sys.stdin.readline()\n"
    "print(np.asarray(d.test_images).shape, flush=True); time.sleep(60)\n"
  )
  parent = subprocess.Popen(
    [sys.executable, "-c", code],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
  )  # fmt: skip
  with parent:
    assert parent.stdout.readline() == "ready\n"
    (worker,) = psutil.Process(parent.pid).children()
    for number in (signal.SIGINT, signal.SIGTERM):
      worker.send_signal(number)
    time.sleep(0.1)
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "(6, 16, 16, 3)\n"
    parent.kill()
  assert psutil.wait_procs([worker], timeout=20)[1] == []


@pytest.mark.parametrize(
  "options, said",
  [
    (dict(workers=-1), "`workers=-1` cannot be used; choose 0 to"),
    (dict(decoder="cv2"), "`decoder=cv2` is not known; choose pillow or"),
    (dict(image_size=4), "`image_size=4` cannot be used; choose 8 to 1024"),
  ],
)
def test_options_that_cannot_be_used(prepared, options, said):
  with pytest.raises(data.DataError, match=said):
    data.load("imagenet", prepared, **options)


def test_a_directory_without_imagenet_names_the_command(tmp_path):
  for root, state in (
    (tmp_path, "has no"),
    (tmp_path / "no", "does not exist"),
  ):
    with pytest.raises(data.DataError) as caught:
      data.load("imagenet_subset", root)
    assert state in caught.value.problem
    assert "data.prepare --dataset=imagenet_subset" in caught.value.fix
