"""Whatever form ImageNet is in, it becomes the same records, or one sentence."""

from collections import Counter
import re
import shutil
import tarfile

import numpy as np
import pytest
from support import data_files, imagenet

from mnemonics_jax import data
from mnemonics_jax.data import imagenet_sources, prepare, reading, shards
from mnemonics_jax.data.imagenet import WORLDS
from mnemonics_jax.data.prepare import prepare_imagenet
from mnemonics_jax.data.shards import Shards
from mnemonics_jax.progress import DataReport

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


# Sources: what there is to copy, and what is wrong with it.


@pytest.mark.parametrize("layout", imagenet.LAYOUTS)
def test_parts_have_all_images_and_tell_when_they_change(tmp_path, layout):
  source = imagenet.LAYOUTS[layout](tmp_path / "source")
  parts = imagenet_sources.parts(source)
  found = {"train": {}, "validation": {}}
  for part in parts:
    photos = list(part.read())
    counts = Counter(photo.wnid for photo in photos)
    assert part.counts in (None, counts)
    assert part.wnids in (None, set(counts))
    found[part.split] |= {p.name: (p.wnid, p.encoded) for p in photos}
  assert found == imagenet.photos()
  again = imagenet_sources.parts(source)
  assert [part.state for part in again] == [part.state for part in parts]
  # All training images come before those of validation.
  assert [part.split for part in parts] == sorted(part.split for part in parts)


def test_an_odd_name_within_an_archive_is_told(tmp_path):
  source = imagenet.tars(tmp_path / "source")
  with tarfile.open(source / "ILSVRC2012_img_val.tar", "a") as archive:
    archive.addfile(tarfile.TarInfo("val/first.JPEG"))
  with pytest.raises(
    data.DataError, match=r"img_val\.tar/first\.JPEG is not the n"
  ):
    for part in imagenet_sources.parts(source):
      list(part.read())


def cut(path, by):
  with path.open("r+b") as file:
    file.truncate(path.stat().st_size - by)


def cut_after(archive, name, before):
  """What is left when a copy ends with a member, or some bytes before that."""
  with tarfile.open(archive) as opened:
    member = opened.getmember(name)
  end = member.offset_data + -(-member.size // 512) * 512
  cut(archive, archive.stat().st_size - end + before)


def overwrite(archive, name):
  with tarfile.open(archive) as opened:
    at = opened.getmember(name).offset_data
  with archive.open("r+b") as file:
    file.seek(at)
    file.write(bytes(range(256)) * 2)


def remove_tar(archive, wnid):
  """The archive without a class."""
  other = archive.with_suffix(".new")
  with tarfile.open(archive) as old, tarfile.open(other, "w") as new:
    for member in old:
      if not member.name.startswith(wnid):
        new.addfile(member, old.extractfile(member))
  other.rename(archive)


MISTAKES = {
  "no ImageNet": ("tars", lambda s: shutil.rmtree(s), "is not a directory"),
  "empty": (
    "flat val",
    lambda s: shutil.rmtree(s / "train"),
    "has no ImageNet; name one with ILSVRC2012_img_train.tar",
  ),
  "truncated train tar": (
    "tars",
    lambda s: cut_after(s / "ILSVRC2012_img_train.tar", "n01514668.tar", 99),
    r"img_train.tar is damaged or incomplete \(unexpected end of data\)",
  ),
  "train tar cut between classes": (
    "tars",
    lambda s: cut_after(s / "ILSVRC2012_img_train.tar", "n01514668.tar", 0),
    r"img_train.tar is damaged or incomplete \(its end is missing\)",
  ),
  "damaged tar within": (
    "tars",
    lambda s: overwrite(s / "ILSVRC2012_img_train.tar", "n01514668.tar"),
    r"img_train.tar/n01514668.tar is damaged",
  ),
  "truncated val tar": (
    "tars",
    lambda s: cut_after(
      s / "ILSVRC2012_img_val.tar", imagenet.validation_names()[3], 700
    ),
    "img_val.tar is damaged or incomplete",
  ),
  "no val tar": (
    "tars",
    lambda s: (s / "ILSVRC2012_img_val.tar").unlink(),
    "ILSVRC2012_img_val.tar is missing",
  ),
  "missing class in tars": (
    "tars",
    lambda s: remove_tar(s / "ILSVRC2012_img_train.tar", "n01514668"),
    "no train images of 1 of the 3 classes of imagenet: n01514668",
  ),
  "missing class": (
    "class folders",
    lambda s: shutil.rmtree(s / "train/n01531178"),
    "no train images of 1 of the 3 classes of imagenet: n01531178",
  ),
  "missing image": (
    "class folders",
    lambda s: (s / "train/n01531178/n01531178_1.JPEG").unlink(),
    "has 3 train images of n01531178, expected 4",
  ),
  "missing validation image": (
    "flat val",
    lambda s: next((s / "val").iterdir()).unlink(),
    r"has 1 validation images of n\d+, expected 2",
  ),
  "missing shard": (
    "tfrecord",
    lambda s: next(s.rglob("*train*-00001-*")).unlink(),
    "has 1 of 2 files of its train split",
  ),
  "truncated tfrecord": (
    "tfrecord",
    lambda s: cut(next(s.rglob("*train*-00001-*")), 10),
    "train.tfrecord-00001-of-00002 is damaged or incomplete",
  ),
  "truncated array_record": (
    "array_record",
    lambda s: cut(next(s.rglob("*train*-00001-*")), 70_000),
    "train.array_record-00001-of-00002 is damaged or incomplete",
  ),
  "no image": (
    "class folders",
    lambda s: (s / "train/n01531178/n01531178_1.JPEG").write_text("<html>"),
    "n01531178_1.JPEG of .*n01531178 is not an image",
  ),
  "odd folder": (
    "class folders",
    lambda s: (s / "train/cats").mkdir(),
    "cats is not named by the WordNet id",
  ),
  "odd name": (
    "flat val",
    lambda s: next((s / "val").iterdir()).rename(s / "val/first.JPEG"),
    "has 1 validation images|first.JPEG is not the name",
  ),
  "sorted wrongly": (
    "class folders",
    lambda s: next((s / "val/n01531178").iterdir()).rename(
      s / "val/n01440764/ILSVRC2012_val_00000001.JPEG"
    ),
    "is an image of n01751748, not of n01440764",
  ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2(
  tmp_path, mistake, monkeypatch, capsys
):
  layout, harm, said = MISTAKES[mistake]
  source = imagenet.LAYOUTS[layout](tmp_path / "source")
  harm(source)
  monkeypatch.setitem(WORLDS, "imagenet", lambda: imagenet.WORLD)
  assert prepare.run(str(source), str(tmp_path / "data"), "imagenet") == 2
  out, error = capsys.readouterr()
  assert not out
  (line,) = error.splitlines()
  assert line.startswith("error: --source") and line.endswith(".")
  assert re.search(said, line), line


# The command: what it says, and how it ends.


def test_a_missing_source_is_told(tmp_path, capsys):
  assert prepare.run(None, None) == 2
  assert "--source is missing" in capsys.readouterr().err
  assert prepare.run(str(tmp_path), None) == 2
  assert f"--source={tmp_path}" in capsys.readouterr().err
  assert prepare.run(None, None, "imagenet_subset") == 2
  assert "--source is missing; name a directory" in capsys.readouterr().err


def test_flags_without_effect_are_refused(capsys):
  assert prepare.run("somewhere", None, "cifar100", reduced=True) == 2
  assert "--reduced has no effect on CIFAR-100" in capsys.readouterr().err


def test_an_interruption_is_no_mistake(monkeypatch, capsys):
  def interrupted(*_, **__):
    raise KeyboardInterrupt

  monkeypatch.setattr(prepare, "prepare_cifar100", interrupted)
  assert prepare.run("somewhere", None) == 130
  assert "the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
  "terminal, shown", [(True, ["50%", "100%\n"]), (False, ["50%\n"])]
)
def test_progress_is_shown_now_and_then(monkeypatch, capsys, terminal, shown):
  """In place on a terminal; else a line a minute, of which there is one here."""
  times = iter([0.0, 0.1, 61.0, 61.1])
  monkeypatch.setattr(prepare.sys.stderr, "isatty", lambda: terminal)
  monkeypatch.setattr(prepare.time, "monotonic", lambda: next(times))
  hear = prepare._progress()
  for done in (10, 50, 100):
    hear(DataReport(done, 100))
  told = capsys.readouterr().err
  assert told.split() == [text.strip() for text in shown] or all(
    text.strip() in told for text in shown
  )
  assert ("\r" in told) == terminal and "10%" not in told


def test_cifar100_on_the_command_line(tmp_path, official):
  module = "-m", "mnemonics_jax.data.prepare"
  result = data_files.run_python(
    *module, f"--source={official[0]}", f"--data_dir={tmp_path}"
  )
  assert result.returncode == 2
  assert "not the official file" in result.stderr
  assert "Traceback" not in result.stderr
  assert list(tmp_path.iterdir()) == []


def test_imagenet_on_the_command_line(tmp_path):
  source = imagenet.folder(tmp_path / "source")
  command = ("-m", "mnemonics_jax.data.prepare", "--dataset=imagenet")
  flags = f"--source={source}", f"--data_dir={tmp_path}", "--reduced"
  done = data_files.run_python(*command, *flags)
  assert done.returncode == 0, done.stderr
  assert "A part of imagenet (3 classes, 12 + 6 images, checked)" in done.stdout
  assert f"experiments.imagenet --full --data_dir={tmp_path}" in done.stdout
  done = data_files.run_python(*command, "--reduce=maybe")
  assert done.returncode == 2
  assert "reduce" in done.stderr and "Traceback" not in done.stderr
