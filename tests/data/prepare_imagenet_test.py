"""Whatever form ImageNet is in, it becomes the same records, or one sentence."""

import shutil

import numpy as np
import pytest
from support import imagenet

from mnemonics_jax import data
from mnemonics_jax.data import imagenet_sources, reading, shards
from mnemonics_jax.data.imagenet import WORLDS
from mnemonics_jax.data.prepare import prepare_imagenet
from mnemonics_jax.data.shards import Shards

WORLD = imagenet.WORLD
TRAIN, VALIDATION = imagenet.TRAIN, imagenet.VALIDATION
SMALL = dict(shard_bytes=2000)  # Several files even here.


@pytest.fixture(scope="module")
def source(tmp_path_factory):
  return imagenet.folder(tmp_path_factory.mktemp("folder"))


@pytest.fixture
def target(tmp_path, source):
  return prepare_imagenet(WORLD, source, tmp_path / "data", **SMALL)


def load(directory, **options):
  return data.load(
    "imagenet", directory.parent, image_size=16, workers=0, **options
  )


def contents(directory):
  """For each split the image files, in the order in which they are learned."""
  index = shards.read_index(directory)
  files = Shards(directory, index.files, 16)
  return {
    split: [(index.wnids[r["label"]], files.encoded(r)) for r in rows]
    for split, rows in index.rows.items()
  }


@pytest.mark.parametrize("layout", imagenet.LAYOUTS)
def test_every_layout_gives_the_files_as_they_were(tmp_path, layout):
  source = imagenet.LAYOUTS[layout](tmp_path / "source")
  before = sorted(source.rglob("*"))
  target = prepare_imagenet(WORLD, source, tmp_path / "data", **SMALL)
  assert target == tmp_path / "data/imagenet"
  expected = {
    split: [images[name] for name in sorted(images)]
    for split, images in imagenet.photos().items()
  }
  # Validation images are sorted by class, then by name.
  expected["validation"].sort(key=lambda image: image[0])
  assert contents(target) == expected
  assert sorted(source.rglob("*")) == before  # Nothing was unpacked there.
  assert not list(target.glob("*.incomplete"))


def test_the_checksum_is_that_of_the_images_whatever_the_layout(tmp_path):
  found = set()
  for i, layout in enumerate(("flat val", "tars", "array_record")):
    source = imagenet.LAYOUTS[layout](tmp_path / f"source{i}")
    bytes_ = 2000 if i else 10**6
    target = prepare_imagenet(
      WORLD, source, tmp_path / f"data{i}", shard_bytes=bytes_
    )
    found.add(load(target).checksum)
  assert len(found) == 1


def test_shards_are_what_tfds_calls_its_fields(target):
  from array_record.python import array_record_module
  from tensorflow_datasets.proto import tf_example_pb2

  path = next(target.glob("train-00000-of-*"))
  reader = array_record_module.ArrayRecordReader(str(path))
  assert reader.writer_options_string() is not None
  (record,) = reader.read([0])
  feature = tf_example_pb2.Example.FromString(record).features.feature
  assert sorted(feature) == ["file_name", "image", "label"]
  assert feature["label"].int64_list.value[:] == [0]  # Of ImageNet's thousand.
  assert feature["file_name"].bytes_list.value[0].startswith(b"n01440764_")
  options = reader.writer_options_string()
  assert "group_size:1," in options and "uncompressed" in options


def test_the_odd_files_of_ilsvrc_have_their_colours(target):
  loaded = load(target)
  names = sorted(imagenet.photos()["train"])
  for name in (imagenet.PNG, imagenet.CMYK):
    row = names.index(name)
    for view in (
      data.images.read(loaded.train_images, [row]),
      data.images.training_view(loaded.train_images, [row], seed=0, epoch=0),
    ):
      difference = view.astype(int) - np.array(imagenet.ORANGE)
      assert np.abs(difference).max() <= 4, name
  grey = data.images.read(loaded.train_images, [names.index(imagenet.GREY)])
  assert np.ptp(grey, axis=-1).max() == 0 and np.ptp(grey) > 20


def test_an_interrupted_preparation_is_noticed_and_goes_on(
  tmp_path, source, target, monkeypatch
):
  halfway = tmp_path / "halfway"
  read, asked = imagenet_sources._folder_part, []

  def interrupted(split, folder, files, wnid=None):
    part = read(split, folder, files, wnid)

    def stop():
      asked.append(folder.name)
      if len(asked) > 2:
        raise KeyboardInterrupt
      yield from part.read()

    return part._replace(read=stop)

  with monkeypatch.context() as patched:
    patched.setattr(imagenet_sources, "_folder_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
      prepare_imagenet(WORLD, source, halfway, **SMALL)
  written = sorted((halfway / "imagenet").glob("*.array_record"))
  times = [path.stat().st_mtime_ns for path in written]
  assert written and not list((halfway / "imagenet").glob("*.incomplete"))
  with pytest.raises(data.DataError, match="preparation was interrupted"):
    load(halfway / "imagenet")
  again = prepare_imagenet(WORLD, source, halfway, **SMALL)
  assert [path.stat().st_mtime_ns for path in written] == times
  assert contents(again) == contents(target)


def test_what_was_killed_at_once_is_noticed_and_removed(tmp_path, source):
  target = tmp_path / "imagenet"
  with shards.locked(target):
    (target / "train-00000-of-00001.array_record.incomplete").touch()
    # Another process meanwhile.
    with pytest.raises(data.DataError, match="another process prepares"):
      prepare_imagenet(WORLD, source, tmp_path)
  with pytest.raises(data.DataError, match="preparation was interrupted"):
    load(target)
  prepare_imagenet(WORLD, source, tmp_path)
  assert not list(target.glob("*.incomplete"))


def test_a_source_that_changes_in_between_is_read_again(tmp_path, source):
  mine = tmp_path / "mine"
  shutil.copytree(source, mine)
  target = prepare_imagenet(WORLD, mine, tmp_path, **SMALL)
  before = load(target).checksum
  path = mine / "train/n01440764/n01440764_1.JPEG"
  path.write_bytes(path.read_bytes() + b"\0")
  prepare_imagenet(WORLD, mine, tmp_path, **SMALL)
  assert load(target).checksum != before


def half_copied(content):
  """As a copy program that reserves space first leaves a file."""
  half = len(content) // 2
  return content[:half] + bytes(len(content) - half)


HARMED = {
  "half copied": half_copied,
  "only zeros after its header": lambda c: c[:3] + bytes(len(c) - 3),
  "truncated": lambda c: c[: len(c) // 2],
  "text": lambda c: b"<html>" + c[6:],
}


@pytest.mark.parametrize("harm", HARMED)
def test_a_bad_source_image_is_named_and_its_repair_noticed(
  tmp_path, source, monkeypatch, harm
):
  """Even where an earlier version has copied the bad image."""
  mine = shutil.copytree(source, tmp_path / "mine")
  path = mine / "train/n01514668/n01514668_2.JPEG"
  whole = path.read_bytes()
  path.write_bytes(HARMED[harm](whole))
  with pytest.raises(
    data.DataError, match=r"n01514668_2.JPEG of .* is not an image that can be"
  ):
    prepare_imagenet(WORLD, mine, tmp_path, **SMALL)
  with monkeypatch.context() as patched:
    patched.setattr(reading, "check", lambda encoded: None)
    target = prepare_imagenet(WORLD, mine, tmp_path, **SMALL)
  before = load(target).checksum
  path.write_bytes(whole)
  prepare_imagenet(WORLD, mine, tmp_path, **SMALL)
  assert load(target).checksum != before
  expected = [
    imagenet.photos()["train"][n] for n in sorted(imagenet.photos()["train"])
  ]
  assert contents(target)["train"] == expected


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove", "index"])
def test_damage_is_noticed_and_repaired(source, target, harm):
  before = contents(target)
  path = sorted(target.glob("train-*.array_record"))[1]
  content = bytearray(path.read_bytes())
  if harm == "flip":
    at = content.index(b"\xff\xd8\xff") + 300  # In the middle of an image.
    content[at] ^= 1
    path.write_bytes(content)
  elif harm == "truncate":
    path.write_bytes(content[:-1])
  elif harm == "remove":
    path.unlink()
  else:
    path = target / "train.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
  with pytest.raises(data.DataError) as caught:
    np.asarray(load(target).train_images)
  assert path.name in str(caught.value)
  assert "data.prepare`, which keeps what is good" in str(caught.value)
  prepare_imagenet(WORLD, source, target.parent, **SMALL)
  assert contents(target) == before


def test_room_is_looked_for_before_anything_is_written(
  tmp_path, source, monkeypatch
):
  usage = shutil.disk_usage(tmp_path)._replace(free=1000)
  monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
  with pytest.raises(data.DataError, match=r"0.0 GB of free space, but 0.0 GB"):
    prepare_imagenet(WORLD, source, tmp_path)
  assert not list((tmp_path / "imagenet").glob("*.array_record*"))


@pytest.mark.parametrize("layout", ["flat val", "tars"])
def test_images_that_lack_are_told_before_anything_is_copied(tmp_path, layout):
  """Classes of validation images are known by their names."""
  source = imagenet.LAYOUTS[layout](tmp_path / "source")
  world = WORLD._replace(
    most={"train": TRAIN, "validation": VALIDATION + 1},
    least={"train": TRAIN, "validation": VALIDATION},
    total={"train": 3 * TRAIN, "validation": 3 * VALIDATION + 1},
  )
  for wrong, said in [
    (world, "6 validation images, expected 7"),
    (
      world._replace(least={"train": TRAIN, "validation": VALIDATION + 1}),
      "2 validation images of n01440764, expected 3",
    ),
  ]:
    with pytest.raises(data.DataError, match=f"has {said};"):
      prepare_imagenet(wrong, source, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_reduced_world_must_be_asked_for_and_says_so(tmp_path, source):
  complete = WORLDS["imagenet"]()
  with pytest.raises(
    data.DataError, match=r"997 of the 1000 classes.*992 more"
  ):
    prepare_imagenet(complete, source, tmp_path)
  assert not list(tmp_path.rglob("*.array_record"))
  target = prepare_imagenet(complete, source, tmp_path, reduced=True)
  loaded = load(target)
  assert loaded.class_names == imagenet.WNIDS
  assert loaded.departures == (
    "a part of the data: 3 of 1,000 classes, 12 training and 6 test images",
  )
  # What is complete is not called reduced because somebody allowed it.
  target = prepare_imagenet(WORLD, source, tmp_path / "all", reduced=True)
  assert load(target).departures == ()
