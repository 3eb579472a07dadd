"""Many files become one array; what cannot be read is named."""

import errno
import os
import time

import numpy as np
import pytest
from support.data_files import BLUE, RED, save_image

from mnemonics_jax.data import DataError, Share, read_images, reading


@pytest.fixture
def files(tmp_path):
  save_image(tmp_path / "red.png", RED)
  (tmp_path / "text.png").write_text("no image")
  save_image(tmp_path / "blue.png", BLUE)
  return [tmp_path / name for name in ("red.png", "text.png", "blue.png")]


def test_rows_are_in_the_order_of_files(files):
  images, problems = read_images(files, (4, 4, 3))
  assert images.dtype == np.uint8
  np.testing.assert_array_equal(images[:, 0, 0], [RED, (0, 0, 0), BLUE])
  assert problems == ["", "not a PNG, JPEG, BMP or WebP image", ""]


def test_progress_counts_every_file(files):
  heard = []
  read_images(files, (4, 4, 3), report=heard.append)
  assert [(event.done, event.total) for event in heard] == [
    (1, 3),
    (2, 3),
    (3, 3),
  ]


def test_a_process_decodes_its_share_only(files, monkeypatch):
  seen, plain = [], reading.decode
  monkeypatch.setattr(
    reading,
    "decode",
    lambda path, shape: seen.append(path) or plain(path, shape),
  )
  twice = lambda array: np.stack([array, array])  # The other has the same.
  images, _ = read_images(files[:2], (4, 4, 3), share=Share(0, 2, twice))
  assert seen == files[:1]
  np.testing.assert_array_equal(images[:, 0, 0], [RED, RED])


@pytest.mark.parametrize(
  "code, fatal",
  [(errno.EIO, True), (errno.ESTALE, True), (errno.EACCES, False)],
)
def test_trouble_of_the_disk_is_not_a_bad_image(
  files, monkeypatch, code, fatal
):
  """Without it, what is read next time would be another data set."""

  def fail(path, shape):
    raise OSError(code, "trouble", str(path))

  monkeypatch.setattr(reading, "decode", fail)
  if fatal:
    with pytest.raises(DataError, match=r"cannot be read now \(trouble\)"):
      read_images(files, (4, 4, 3))
  else:
    assert read_images(files, (4, 4, 3))[1] == ["trouble"] * 3


def test_no_files_are_no_rows():
  images, problems = read_images([], (4, 5, 3))
  assert images.shape == (0, 4, 5, 3) and problems == []


def test_threads_share_a_budget_of_pixels(tmp_path, monkeypatch):
  """Large images are decoded one after the other, however many threads there are."""
  under_way, most = [0], []
  convert = reading._to_rgb

  def watched(image):
    under_way[0] += 1
    most.append(under_way[0])
    time.sleep(0.02)
    under_way[0] -= 1
    return convert(image)

  files = [save_image(tmp_path / f"{i}.png", size=(20, 10)) for i in range(12)]
  monkeypatch.setattr(os, "cpu_count", lambda: 6)
  monkeypatch.setattr(reading, "_to_rgb", watched)
  for budget, expected in ((200, 1), (450, 2)):
    monkeypatch.setattr(reading, "_BUDGET", reading._Budget(budget))
    read_images(files, (4, 4, 3))
    assert max(most) == expected
    most.clear()
  # What fails gives its pixels back.
  monkeypatch.setattr(reading, "_to_rgb", lambda image: 1 / 0)
  _, problems = read_images(files, (4, 4, 3))
  assert problems == ["division by zero"] * 12
  assert reading._BUDGET._free == 450
