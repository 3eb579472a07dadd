"""Forms of ImageNet: what there is to copy, and what is wrong with it."""

from collections import Counter
import re
import shutil
import tarfile

import pytest
from support import imagenet

from mnemonics_jax.data import DataError, imagenet_sources, prepare
from mnemonics_jax.data.imagenet import WORLDS


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
  with pytest.raises(DataError, match=r"img_val\.tar/first\.JPEG is not the n"):
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
