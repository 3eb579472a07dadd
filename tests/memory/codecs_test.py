"""Codes against the files that Pillow itself writes and reads."""

import io

import numpy as np
from PIL import Image, JpegImagePlugin
import pytest

from mnemonics_jax import memory

RNG = np.random.default_rng(0)
# Not a multiple of the 8×8 blocks; smooth enough for a code to be worth it.
SMALL = RNG.integers(0, 256, (5, 3, 4, 3), np.uint8)
IMAGES = np.stack(
  [Image.fromarray(x).resize((20, 13), Image.Resampling.BICUBIC) for x in SMALL]
)
SHAPE = (13, 20, 3)


def opened(content):
  with Image.open(io.BytesIO(content)) as picture:
    picture.load()
    return picture


@pytest.mark.parametrize(
  ("codec", "kind", "options"),
  [
    (memory.Jpeg(60), "JPEG", dict(quality=60, subsampling=0)),
    (memory.WebP(60), "WEBP", dict(quality=60)),
  ],
)
def test_codes_are_what_pillow_writes_without_what_all_share(
  codec, kind, options
):
  codes = codec.encode(IMAGES)
  for image, code in zip(IMAGES, codes.apart(), strict=True):
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, **options)
    content = codec.to_file(code, SHAPE)
    assert content == file.getvalue()
  assert codes.sizes.sum() == codes.data.size < IMAGES.size / 2


def test_jpeg_keeps_colours_at_full_resolution():
  code = memory.Jpeg(75).encode(IMAGES[:1]).apart()[0]
  picture = opened(memory.Jpeg(75).to_file(code, SHAPE))
  assert isinstance(picture, JpegImagePlugin.JpegImageFile)
  assert JpegImagePlugin.get_sampling(picture) == 0  # 4:4:4


def test_raw_is_exact_and_a_png_outside():
  codes = memory.Raw().encode(IMAGES)
  assert codes.sizes.tolist() == [13 * 20 * 3] * 5
  assert np.shares_memory(memory.Raw().decode(codes, SHAPE), codes.data)
  content = memory.Raw().to_file(codes.apart()[2], SHAPE)
  np.testing.assert_array_equal(np.asarray(opened(content)), IMAGES[2])
  assert memory.Raw().from_file(content, SHAPE) == IMAGES[2].tobytes()


def test_grey_images():
  grey = IMAGES[..., :1]
  kept = memory.round_trip(memory.Jpeg(90), grey)
  assert kept.shape == grey.shape
  assert np.abs(kept.astype(int) - grey).mean() < 5


@pytest.mark.parametrize(
  ("codec", "content"),
  [
    (memory.Jpeg(75), memory.Jpeg(50).write(IMAGES[0])),  # Other tables.
    (memory.Jpeg(75), memory.Jpeg(75).write(IMAGES[0, :8])),  # Another size.
    (memory.Raw(), memory.Raw().to_file(IMAGES[0, :8].ravel(), (8, 20, 3))),
  ],
)
def test_files_of_another_quality_or_size_are_refused(codec, content):
  with pytest.raises(ValueError):
    codec.from_file(content, SHAPE)
