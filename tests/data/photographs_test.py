"""Views of photographs: random parts for training, the middle for tests."""

import numpy as np
from PIL import Image, JpegImagePlugin
import pytest
from support import imagenet

from mnemonics_jax.data import views

BILINEAR = Image.Resampling.BILINEAR


def photo(width=101, height=75):
  """Grows brighter to the right (red) and to the bottom (green)."""
  x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
  return Image.fromarray(np.stack([x, y, 0 * x], -1).astype(np.uint8))


def test_tests_see_the_middle():
  """At 224 pixels, the shorter side has 256."""
  encoded = imagenet.encode(photo(400, 300), "PNG")
  expected = photo(400, 300).resize((341, 256), BILINEAR)
  expected = expected.crop((58, 16, 58 + 224, 16 + 224))
  found = views.evaluation_view(encoded, 224)
  np.testing.assert_array_equal(found, np.asarray(expected))


def test_half_of_the_training_views_are_mirrored():
  encoded = imagenet.encode(photo(), "PNG")
  brighter_right = [
    view[:, -1, 0].mean() > view[:, 0, 0].mean()
    for i in range(200)
    for view in [views.training_view(encoded, 16, np.random.default_rng(i))]
  ]
  assert 70 < sum(brighter_right) < 130


def test_a_training_view_is_the_part_that_was_drawn():
  encoded = imagenet.encode(photo(), "PNG")
  for seed in range(20):
    generator = np.random.default_rng(seed)
    mirrored = generator.random() < 0.5
    left, top, w, h = views.random_box(101, 75, generator)
    part = photo().crop((left, top, left + w, top + h))
    expected = np.asarray(part.resize((24, 24), BILINEAR))
    if mirrored:
      expected = expected[:, ::-1]
    view = views.training_view(encoded, 24, np.random.default_rng(seed))
    np.testing.assert_array_equal(view, expected)


def test_large_files_are_decoded_smaller_with_the_same_views(monkeypatch):
  encoded = imagenet.encode(photo(1201, 899), quality=95)
  asked = []

  def both():
    generator = np.random.default_rng(3)
    return np.stack(
      [
        views.evaluation_view(encoded, 32),
        views.training_view(encoded, 32, generator),
      ]
    ).astype(int)

  draft = JpegImagePlugin.JpegImageFile.draft

  def noting(self, mode, size):
    asked.append(size)
    return draft(self, mode, size)

  monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "draft", noting)
  smaller = both()
  assert len(asked) == 2
  monkeypatch.setattr(views, "_FACTORS", ())
  whole = both()
  assert len(asked) == 2
  assert np.abs(smaller - whole).max() <= 6
  assert np.abs(smaller - whole).mean() < 1


def test_simplejpeg_gives_the_same_pixels():
  pytest.importorskip("simplejpeg", reason="an option, '.[imagenet]'")
  rng = np.random.default_rng(0)
  for size in ((101, 75), (640, 481)):
    noise = Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8))
    image = noise.resize(size)
    for mode in ("RGB", "L", "CMYK"):
      for options in ({}, {"progressive": True}, {"subsampling": 0}):
        encoded = imagenet.encode(image.convert(mode), **options)
        first, second = (
          np.stack(
            [
              views.evaluation_view(encoded, 64, decoder),
              views.training_view(
                encoded, 64, np.random.default_rng(1), decoder
              ),
            ]
          )
          for decoder in views.DECODERS
        )
        np.testing.assert_array_equal(first, second)
  png = imagenet.encode(image, "PNG")
  assert views.evaluation_view(png, 64, "simplejpeg").shape == (64, 64, 3)
