"""Files of any kind become upright pixels of one size; what cannot be read is named."""

import errno
import os
import re
import struct
import time

import numpy as np
from PIL import Image, ImageFile
import pytest
from support import data_files, imagenet
from support.data_files import BLUE, RED, save_image

from mnemonics_jax import data
from mnemonics_jax.data import DataError, Share, read_images, reading
from mnemonics_jax.data.reading import decode

# One file.

KINDS = {
  "grey": ({"mode": "L", "color": (100,) * 3}, (100,) * 3),
  "palette": ({"mode": "P", "color": BLUE}, BLUE),
  "bilevel": ({"mode": "1", "color": (255,) * 3}, (255,) * 3),
  "rgba opaque": ({"mode": "RGBA"}, RED),
}


@pytest.mark.parametrize("kind", KINDS)
def test_modes(tmp_path, kind):
  options, expected = KINDS[kind]
  image = decode(save_image(tmp_path / "a.png", **options), 8)
  np.testing.assert_array_equal(image, [[expected] * 8] * 8)


def test_alpha_is_white_behind(tmp_path):
  path = tmp_path / "a.png"
  # Half of red over white: 255, 127 or 128, the same.
  Image.new("RGBA", (9, 9), (255, 0, 0, 128)).save(path)
  np.testing.assert_allclose(decode(path, 8)[4, 4], [255, 127, 127], atol=1)
  Image.new("LA", (9, 9), (0, 0)).save(path)
  np.testing.assert_array_equal(decode(path, 8), 255)
  palette = Image.new("P", (9, 9), 1)
  palette.putpalette([0, 0, 0, 10, 20, 30])
  palette.save(path, transparency=1)
  np.testing.assert_array_equal(decode(path, 8), 255)
  palette.save(path, transparency=0)
  np.testing.assert_array_equal(decode(path, 8)[0, 0], [10, 20, 30])


def test_cmyk(tmp_path):
  path = tmp_path / "a.jpg"
  Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(path)  # No cyan: red.
  np.testing.assert_allclose(decode(path, 8)[4, 4], RED, atol=6)


def test_sixteen_bits(tmp_path):
  path = tmp_path / "a.png"
  values = np.full((9, 9), 40200, np.uint16)
  Image.fromarray(values).save(path)
  # 40200 / 65535 · 255 = 156.4; a shift by 8 bits would give 157.0.
  np.testing.assert_array_equal(decode(path, 8), 156)


def test_exif_orientation(tmp_path):
  path = tmp_path / "a.jpg"
  pixels = np.zeros((32, 32, 3), np.uint8)
  pixels[:16] = 255  # White above as stored.
  exif = Image.Exif()
  exif[0x0112] = 3  # To be shown upside down.
  Image.fromarray(pixels).save(path, exif=exif)
  shown = decode(path, 8)
  assert shown[1].min() < 10 and shown[6].min() > 245


def test_damaged_exif_is_no_reason_to_skip(tmp_path):
  path = save_image(tmp_path / "a.jpg", exif=b"Exif\0\0garbage that is no TIFF")
  np.testing.assert_allclose(decode(path, 8)[4, 4], RED, atol=6)


def test_shorter_side_is_resized_then_the_centre_cropped(tmp_path):
  # A ramp of 4 per column stays a ramp: column j of the result lies between
  # columns 2j and 2j + 1 of the middle 16×16, which begins at column 16.
  ramp = np.tile(4 * np.arange(48, dtype=np.uint8), (16, 1))
  expected = 4 * (16 + 2 * np.arange(8) + 0.5)
  for name, pixels in (("wide.png", ramp), ("tall.png", ramp.T)):
    Image.fromarray(pixels).save(tmp_path / name)
    shown = decode(tmp_path / name, 8)[..., 0]
    shown = shown if name == "wide.png" else shown.T
    np.testing.assert_array_equal(shown, np.tile(expected, (8, 1)))


def test_fine_patterns_are_averaged(tmp_path):
  checker = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
  Image.fromarray(checker).save(tmp_path / "a.png")
  small = decode(tmp_path / "a.png", 8)[2:6, 2:6].astype(int)
  assert abs(small - 127.5).max() < 6  # Nearest neighbour gives 0 or 255.


def test_shapes_that_are_not_square_and_grey_ones(tmp_path):
  path = save_image(tmp_path / "a.png", RED, size=(20, 10))
  assert decode(path, (4, 6, 3)).shape == (4, 6, 3)
  grey = decode(path, (4, 6, 1))
  # Rec. 601: 0.299 of red.
  np.testing.assert_allclose(grey, np.full((4, 6, 1), 0.299 * RED[0]), atol=1)
  with pytest.raises(ValueError, match="2 channels"):
    decode(path, (4, 6, 2))


def test_content_decides_not_the_suffix(tmp_path):
  save_image(tmp_path / "a.png", RED).rename(tmp_path / "a.jpg")
  np.testing.assert_array_equal(decode(tmp_path / "a.jpg", 8)[0, 0], RED)


# Many files.


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


# Images that claim to be huge.


def jpeg(path, width, height):
  data_files.save_image(path)
  content = bytearray(path.read_bytes())
  frame = content.index(b"\xff\xc0") + 5
  content[frame : frame + 4] = struct.pack(">HH", height, width)
  path.write_bytes(content)


def bmp(path, width, height):
  data_files.save_image(path)
  content = bytearray(path.read_bytes())
  content[18:26] = struct.pack("<ii", width, height)
  path.write_bytes(content)


BOMBS = {"png": data_files.write_bomb, "jpg": jpeg, "bmp": bmp}


@pytest.mark.parametrize("size", [(10000, 10000), (60000, 60000)])
@pytest.mark.parametrize("kind", BOMBS)
def test_huge_images_are_refused_undecoded(tmp_path, monkeypatch, kind, size):
  images = data_files.write_folder(tmp_path / "images")
  BOMBS[kind](images / f"train/cat/bomb.{kind}", *size)
  load, largest = ImageFile.ImageFile.load, []

  def watched(image):
    largest.append(image.width * image.height)
    return load(image)

  monkeypatch.setattr(ImageFile.ImageFile, "load", watched)
  with pytest.raises(data.DataError) as error:
    data.load("folder", images, strict=True, cache_dir=tmp_path / "cache")
  assert re.search(rf"train/cat/bomb\.{kind}: .*pixels", str(error.value))
  assert max(largest) == 20 * 16


def test_a_file_is_checked_to_its_end():
  """Pillow takes the zeros of a half-copied photograph for grey pixels."""
  rng = np.random.default_rng(0)
  photo = Image.fromarray(rng.integers(0, 256, (375, 500, 3), np.uint8))
  whole = imagenet.encode(photo)
  for fine in (whole, whole + bytes(99), imagenet.encode(photo, "PNG")):
    reading.check(fine)
  for cut in (len(whole) // 4, len(whole) // 2, len(whole) - 2000):
    zeros = bytes(len(whole) - cut)
    with pytest.raises((ValueError, OSError), match=r"its end is miss|truncat"):
      reading.check(whole[:cut] + zeros)
    with pytest.raises(OSError, match="truncated"):
      reading.check(whole[:cut])
  tiny = imagenet.encode(photo.resize((3, 2)))
  reading.check(tiny)
