"""A small ImageNet in every form in which people have it."""

import functools
import io
from pathlib import Path
import struct
import tarfile

import numpy as np
from PIL import Image

from mnemonics_jax.data import imagenet
from mnemonics_jax.data.imagenet import World

# Two classes of ImageNet-Subset and one that is not among them.
WNIDS = ("n01440764", "n01514668", "n01531178")
TRAIN, VALIDATION = 4, 2
PNG, CMYK, GREY = "n01440764_0.JPEG", "n01514668_1.JPEG", "n01531178_2.JPEG"
ORANGE = (230, 120, 20)

WORLD = World(
  "imagenet",
  WNIDS,
  least={"train": TRAIN, "validation": VALIDATION},
  most={"train": TRAIN, "validation": VALIDATION},
  total={"train": 3 * TRAIN, "validation": 3 * VALIDATION},
)
"""What is complete here."""


@functools.cache
def photos() -> dict[str, dict[str, tuple[str, bytes]]]:
  """For each split file names, their classes and contents."""
  rng = np.random.default_rng(0)
  splits = {"train": {}, "validation": {}}
  for wnid in WNIDS:
    for i in range(TRAIN):
      name = f"{wnid}_{i}.JPEG"
      splits["train"][name] = wnid, _encoded(name, rng)
  for name in validation_names():
    wnid = imagenet.validation_wnid(name)
    assert wnid in WNIDS
    splits["validation"][name] = wnid, _encoded(name, rng)
  return splits


def validation_names() -> list[str]:
  """The first validation images of each class, as ImageNet calls them."""
  found = {wnid: [] for wnid in WNIDS}
  for number, wnid in enumerate(imagenet.validation_labels(), 1):
    if wnid in found and len(found[wnid]) < VALIDATION:
      found[wnid].append(f"ILSVRC2012_val_{number:08d}.JPEG")
  return sorted(name for names in found.values() for name in names)


def _encoded(name, rng):
  """A JPEG file of some size, or the odd one out."""
  if name == PNG:
    return encode(Image.new("RGB", (50, 40), ORANGE), "PNG")
  if name == CMYK:
    return encode(Image.new("RGB", (50, 40), ORANGE).convert("CMYK"))
  width, height = rng.integers(30, 60, 2)
  small = rng.integers(0, 256, (5, 4, 3), np.uint8)
  image = Image.fromarray(small).resize((width, height))
  return encode(image.convert("L") if name == GREY else image)


def encode(image: Image.Image, kind: str = "JPEG", **options) -> bytes:
  file = io.BytesIO()
  image.save(file, kind, **options)
  return file.getvalue()


def folder(root: Path, flat: bool = False, below: str = "") -> Path:
  """`train/<wnid>/` and `val/`, which may be flat."""
  splits = photos()
  for name, (wnid, encoded) in splits["train"].items():
    _write(root / below / "train" / wnid / name, encoded)
  for name, (wnid, encoded) in splits["validation"].items():
    _write(root / below / "val" / ("" if flat else wnid) / name, encoded)
  return root


def kaggle(root: Path) -> Path:
  return folder(root, flat=True, below="ILSVRC/Data/CLS-LOC")


def tars(root: Path) -> Path:
  """The official archives: one of archives, one of images."""
  root.mkdir(parents=True, exist_ok=True)
  splits = photos()
  with tarfile.open(root / "ILSVRC2012_img_train.tar", "w") as outer:
    for wnid in reversed(WNIDS):  # No order is promised.
      inner = io.BytesIO()
      with tarfile.open(fileobj=inner, mode="w") as archive:
        for name, (label, encoded) in splits["train"].items():
          if label == wnid:
            _add(archive, name, encoded)
      _add(outer, f"{wnid}.tar", inner.getvalue())
  with tarfile.open(root / "ILSVRC2012_img_val.tar", "w") as archive:
    for name, (_, encoded) in splits["validation"].items():
      _add(archive, name, encoded)
  return root


def tfds(root: Path, file_format: str) -> Path:
  """`imagenet2012/5.1.0`, records in an order of their own, in two files."""
  from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

  directory = root / "imagenet2012/5.1.0"
  directory.mkdir(parents=True)
  rng = np.random.default_rng(1)
  for split, images in photos().items():
    shuffled = [list(images.items())[i] for i in rng.permutation(len(images))]
    for shard in range(2):
      records = [_example(*image) for image in shuffled[shard::2]]
      path = (
        directory / f"imagenet2012-{split}.{file_format}-{shard:05d}-of-00002"
      )
      if file_format == "tfrecord":
        path.write_bytes(b"".join(map(_framed, records)))
        continue
      writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
      for record in records:
        writer.write(record)
      writer.close()
  return root


LAYOUTS = {
  "class folders": folder,
  "flat val": lambda root: folder(root, flat=True),
  "kaggle": kaggle,
  "tars": tars,
  "tfrecord": lambda root: tfds(root, "tfrecord"),
  "array_record": lambda root: tfds(root, "array_record"),
}


def _example(name, labelled):
  from tensorflow_datasets.proto import tf_example_pb2

  wnid, encoded = labelled
  example = tf_example_pb2.Example()  # pyright: ignore[reportAttributeAccessIssue]
  feature = example.features.feature
  feature["image"].bytes_list.value.append(encoded)
  label = imagenet.all_wnids().index(wnid)
  feature["label"].int64_list.value.append(label)
  feature["file_name"].bytes_list.value.append(name.encode())
  return example.SerializeToString()


def _framed(record):
  """With its length and checksums before and after, as TFRecord files are."""
  length = struct.pack("<Q", len(record))
  return length + _masked_crc(length) + record + _masked_crc(record)


def _masked_crc(content):
  crc = 0xFFFFFFFF
  for byte in content:
    crc ^= byte
    for _ in range(8):
      crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
  crc ^= 0xFFFFFFFF
  masked = (crc >> 15 | crc << 17) + 0xA282EAD8
  return struct.pack("<I", masked & 0xFFFFFFFF)


def _add(archive, name, content):
  member = tarfile.TarInfo(name)
  member.size = len(content)
  archive.addfile(member, io.BytesIO(content))


def _write(path, content):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(content)
