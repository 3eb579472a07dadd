"""One file of any kind becomes upright pixels of one size."""

import os

import numpy as np
from PIL import Image
import pytest
from support.data_files import BLUE, RED, save_image, write_bomb

from mnemonics_jax.data.reading import decode

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


@pytest.mark.filterwarnings("ignore")  # PIL's own, of large images.
def test_what_is_no_file_or_too_large_is_not_opened(tmp_path):
  os.mkfifo(tmp_path / "pipe.png")  # To open it would wait for ever.
  with pytest.raises(OSError, match="not a regular file"):
    decode(tmp_path / "pipe.png", 8)
  write_bomb(tmp_path / "bomb.png", 10000, 10000)
  with pytest.raises(ValueError, match="10000×10000 pixels are too many"):
    decode(tmp_path / "bomb.png", 8)


def test_content_decides_not_the_suffix(tmp_path):
  save_image(tmp_path / "a.png", RED).rename(tmp_path / "a.jpg")
  np.testing.assert_array_equal(decode(tmp_path / "a.jpg", 8)[0, 0], RED)
  Image.new("RGB", (9, 9)).save(tmp_path / "tiff.png", format="TIFF")
  with pytest.raises(Image.UnidentifiedImageError):
    decode(tmp_path / "tiff.png", 8)
