"""Parts of images: of which size, from where, as torchvision has them."""

import math

import numpy as np
from PIL import Image

from mnemonics_jax.data import views

BILINEAR = Image.Resampling.BILINEAR


def photo(width=101, height=75):
  """Grows brighter to the right (red) and to the bottom (green)."""
  x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
  return Image.fromarray(np.stack([x, y, 0 * x], -1).astype(np.uint8))


def test_the_middle_is_what_torchvision_cuts_out():
  # Resize(32) makes 101×75 to 43×32, CenterCrop(28) begins at (7.5, 2) → (8, 2).
  expected = photo().resize((43, 32), BILINEAR).crop((8, 2, 36, 30))
  found = views.middle(photo(), size=28, shorter=32)
  np.testing.assert_array_equal(found, np.asarray(expected))


def test_random_parts_have_the_areas_and_aspects_of_the_papers():
  boxes = [
    views.random_box(500, 375, np.random.default_rng(i)) for i in range(4000)
  ]
  for left, top, w, h in boxes:
    assert 0 <= left <= 500 - w and 0 <= top <= 375 - h
  areas = np.array([w * h / (500 * 375) for _, _, w, h in boxes])
  aspects = np.array([math.log(w / h) for _, _, w, h in boxes])
  assert areas.min() > 0.075 and areas.max() <= 1
  assert np.abs(aspects).max() < math.log(4 / 3) + 0.02
  # Large parts of a wrong aspect do not fit and are drawn again, so that the
  # mean is below 54 %. A program of its own with the rule of torchvision and
  # Python's random numbers had 0.4326 after 10^6 draws.
  assert abs(areas.mean() - 0.4326) < 0.015
  # Everywhere: of those parts that could be further left or right.
  places = [left / (500 - w) for left, _, w, _ in boxes if w < 400]
  assert abs(np.mean(places) - 0.5) < 0.02


def test_a_panorama_gives_its_middle():
  generator = np.random.default_rng(0)
  assert views.random_box(1000, 10, generator) == (493, 0, 13, 10)
  assert views.random_box(10, 1000, generator) == (0, 493, 10, 13)


def test_a_view_of_pixels_is_the_part_that_was_drawn():
  pixels = np.asarray(photo(24, 16))
  for seed in range(8):
    box, mirrored = views.draw(24, 16, np.random.default_rng(seed))
    left, top, w, h = box
    part = photo(24, 16).crop((left, top, left + w, top + h))
    expected = np.asarray(part.resize((24, 16), BILINEAR))
    expected = expected[:, ::-1] if mirrored else expected
    found = views.random_view(pixels, np.random.default_rng(seed))
    np.testing.assert_array_equal(found, expected)
