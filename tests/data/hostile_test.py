"""Data are not unpacked, and not decoded beyond reason.

Whoever made an archive or an image may mean harm.
"""

import io
import os
import re
import struct
import tarfile

from PIL import ImageFile
import pytest
from support import data_files

from mnemonics_jax import data
from mnemonics_jax.data import cifar100

# Archives.


def test_archives_are_not_unpacked(tmp_path):
  """Members that point outside or are links are neither written nor read."""
  official = tmp_path / "official"
  md5 = data_files.write_official(official, data_files.cifar_arrays())
  outside = tmp_path / "outside"
  archive = tmp_path / "archive/cifar-100-python.tar.gz"
  archive.parent.mkdir()
  with tarfile.open(archive, "w:gz") as tar:
    for name in ("../outside", str(outside), "x/../../outside"):
      member = tarfile.TarInfo(name)
      member.size = 4
      tar.addfile(member, io.BytesIO(b"evil"))
    for kind, name in (
      (tarfile.SYMTYPE, "cifar-100-python"),
      (tarfile.SYMTYPE, "cifar-100-python/train"),
      (tarfile.LNKTYPE, "cifar-100-python/train"),
    ):
      member = tarfile.TarInfo(name)
      member.type, member.linkname = kind, str(official / "train")
      tar.addfile(member)
    for name in ("test", "meta"):
      tar.add(official / name, f"cifar-100-python/{name}")
  with pytest.raises(data.DataError, match="no file train"):
    cifar100.read_official(archive, md5=md5)
  names = {path.name for path in tmp_path.iterdir()}
  assert names == {"official", "archive"}
  assert os.listdir(archive.parent) == [archive.name]


# Images.


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


def test_huge_images_in_records_are_refused_undecoded(tmp_path, monkeypatch):
  from tensorflow_datasets.proto import tf_example_pb2

  data_files.write_tfds(tmp_path / "3.0.2", data_files.cifar_arrays())
  data_files.write_bomb(tmp_path / "bomb.png", 5000, 5000)
  feature = (example := tf_example_pb2.Example()).features.feature
  feature["image"].bytes_list.value.append((tmp_path / "bomb.png").read_bytes())
  feature["id"].bytes_list.value.append(b"bomb")
  feature["label"].int64_list.value.append(0)
  body = example.SerializeToString()
  (tmp_path / "3.0.2/cifar100-test.tfrecord-00000-of-00001").write_bytes(
    data_files.framed(body)
  )
  sizes = []
  load = ImageFile.ImageFile.load
  monkeypatch.setattr(
    ImageFile.ImageFile,
    "load",
    lambda image: sizes.append(image.size) or load(image),
  )
  with pytest.raises(data.DataError, match=r"`data_dir`: .* damaged"):
    cifar100.read_tfds(tmp_path / "3.0.2")
  assert set(sizes) == {(32, 32)}
