"""What every codec promises, tested as soon as it is in `registry.CODECS`."""

import dataclasses
import io
import json

import numpy as np
from PIL import Image
import pytest

from mnemonics_jax import memory, registry
from mnemonics_jax.errors import UserError
from mnemonics_jax.identity import identity, restore

SHAPE = (13, 20, 3)  # Not whole blocks of 8×8.
SMOOTH = [
  Image.fromarray(x).resize((20, 13), Image.Resampling.BICUBIC)
  for x in np.random.default_rng(0).integers(0, 256, (5, 3, 4, 3), np.uint8)
]
IMAGES = np.stack([np.asarray(x) for x in SMOOTH])
every_codec = pytest.mark.parametrize("name", [*registry.CODECS])


@every_codec
def test_images_come_back_exact_or_nearly(name):
  codec = memory.parse_codec(name)
  assert isinstance(codec, memory.Codec)
  kept = memory.round_trip(codec, IMAGES)
  assert kept.shape == IMAGES.shape and kept.dtype == np.uint8
  error = np.abs(kept.astype(int) - IMAGES)
  assert error.max() == 0 if codec.exact else 0 < error.mean() < 12
  assert memory.round_trip(codec, IMAGES[:0]).shape == (0, *SHAPE)


@every_codec
def test_codes_are_those_of_single_images(name):
  """So a class can drop images without coding the others again."""
  codec = memory.parse_codec(name)
  codes = codec.encode(IMAGES)
  assert codes.sizes.sum() == codes.data.size and codes.sizes.min() > 0
  for image, code in zip(IMAGES, codes.apart(), strict=True):
    alone = codec.encode(image[None])
    np.testing.assert_array_equal(alone.data, code)
    (decoded,) = codec.decode(alone, SHAPE)
    np.testing.assert_array_equal(
      decoded, memory.round_trip(codec, image[None])[0]
    )


@every_codec
def test_files_are_pictures_for_other_programs(name):
  """And what is equal in all of them is the header that codes leave out."""
  codec = memory.parse_codec(name)
  codes = codec.encode(IMAGES)
  for code, kept in zip(codes.apart(), codec.decode(codes, SHAPE), strict=True):
    content = codec.to_file(code, SHAPE)
    with Image.open(io.BytesIO(content)) as picture:
      np.testing.assert_array_equal(np.asarray(picture), kept)
      assert codec.suffix in Image.registered_extensions()
    assert codec.from_file(content, SHAPE) == code.tobytes()
    if shared := codec.shared(SHAPE):
      assert len(content) == len(shared) + len(code)


@every_codec
@pytest.mark.parametrize("other", [*registry.CODECS, "cut"])
def test_files_of_another_kind_are_refused(name, other):
  codec = memory.parse_codec(name)
  if other != "cut" and memory.parse_codec(other).suffix == codec.suffix:
    pytest.skip("files of this kind may be its own")
  if other == "cut":
    content = codec.to_file(codec.encode(IMAGES[:1]).data, SHAPE)[:3]
  else:
    from_other = memory.parse_codec(other)
    content = from_other.to_file(from_other.encode(IMAGES[:1]).data, SHAPE)
  with pytest.raises((ValueError, OSError)):
    codec.from_file(content, SHAPE)


@every_codec
def test_it_is_read_from_text_and_written_down(name):
  codec = memory.parse_codec(name)
  fields = dataclasses.fields(codec)  # pyright: ignore[reportArgumentType]
  texts = [f"{name}:1", f"{name}:100"] if fields else [name]
  for text in texts:
    codec = memory.parse_codec(text)
    assert str(codec) == text and memory.parse_codec(codec) is codec
    assert hash(codec) == hash(memory.parse_codec(text))
    written = json.loads(json.dumps(identity(codec)))
    if type(codec).__module__.startswith("mnemonics_jax."):
      assert restore(written) == codec
  for number in ["", "x", "-1", "1.5", *(["0", "101"] if fields else ["5"])]:
    with pytest.raises(UserError, match=f"`codec={name}:{number}`") as refused:
      memory.parse_codec(f"{name}:{number}")
    assert refused.value.field == "codec"


@every_codec
def test_images_that_it_cannot_code_are_refused(name):
  codec = memory.parse_codec(name)
  codec.check(SHAPE)
  for channels in (1, 4):
    shape = (8, 8, channels)
    try:
      codec.check(shape)
    except UserError as refused:
      assert f"no images of {channels} channels" in str(refused)
    else:
      images = np.arange(8 * 8 * channels, dtype=np.uint8).reshape(1, *shape)
      assert memory.round_trip(codec, images).shape == images.shape


@every_codec
@pytest.mark.parametrize("kind", ["per_class_bytes", "total_bytes"])
def test_a_budget_of_bytes_is_never_exceeded(name, kind):
  codec = memory.parse_codec(name)
  size = int(codec.encode(IMAGES).sizes.max())
  shared = len(codec.shared(SHAPE))
  policy = memory.parse(f"{kind}:{4 * size + shared}")
  policy = memory.fit(policy, codec, IMAGES)
  for classes in (1, 2):
    store = memory.empty(classes, SHAPE, codec)
    for label in range(classes):
      store = memory.insert(store, label, IMAGES)
    limit = policy.bytes_allowance(classes, shared)
    store = memory.discard(
      None, store, policy.allowance(classes), bytes_allowance=limit
    )
    assert store.counts.min() >= 1
    most = policy.bytes * (classes if kind == "per_class_bytes" else 1)
    assert store.codes.sizes.sum() <= most
    if kind == "total_bytes":
      assert memory.size_bytes(store) <= most


@pytest.mark.parametrize("text", ["", "png", "jpeg:", "raw:5"])
def test_the_refusal_lists_the_codecs(text):
  with pytest.raises(UserError, match=r"`codec=.*raw, jpeg:Q, webp:Q, where Q"):
    memory.parse_codec(text)
