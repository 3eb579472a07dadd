"""CIFAR-100 in all its forms: official files, TFDS directories, a download, nothing."""

import dataclasses
import functools
import io
import os
from pathlib import Path
import pickle
import re
import shutil
import tarfile
import time

import numpy as np
from PIL import ImageFile
import pytest
from support import command, data_files

from mnemonics_jax import data
from mnemonics_jax.data import cifar100, prepare, records
from mnemonics_jax.data.dataset import data_directory


@pytest.fixture(scope="module")
def originals(official, prepared, expected, tmp_path_factory):
  """A directory of each form."""
  records_ = tmp_path_factory.mktemp("tfrecord") / "3.0.2"
  data_files.write_tfds(records_, expected)
  return {
    "official": official[0] / "cifar-100-python",
    "archive": official[0] / "archive",
    "tfrecord": records_,
    "array_record": prepared / "cifar100/3.0.2",
  }


@pytest.fixture
def load(tmp_path, official):
  """Reads a directory as if the small files were the published ones."""
  return lambda path, **options: cifar100.load(
    path,
    md5=official[1],
    per_class=data_files.PER_CLASS,
    **{"cache_dir": tmp_path / "cache"} | options,
  )


# Every form holds the same.


@pytest.mark.parametrize(
  "form, below",
  [
    ("official", "."),
    ("official", ".."),
    ("archive", "."),
    ("archive", "cifar-100-python.tar.gz"),
    ("tfrecord", "."),
    ("array_record", "."),
    ("array_record", ".."),
    ("array_record", "../.."),
  ],
)
def test_every_form_is_found_and_holds_the_same(
  originals, load, expected, form, below
):
  """Records come in the order of their ids, whatever shards they are in."""
  heard = []
  dataset = load(originals[form] / below, report=heard.append)
  data_files.assert_same_arrays(dataset, expected)
  if "record" in form:
    assert heard == [(300, 300)]


def test_the_cache_changes_with_any_file(originals, tmp_path):
  files = cifar100._official_files(originals["official"])
  assert {path.name for path in files} == {"train", "test", "meta"}
  (archive,) = cifar100._official_files(
    cifar100.find_official(originals["archive"])
  )
  assert archive.name == "cifar-100-python.tar.gz"
  assert len(cifar100._tfds_files(originals["tfrecord"])) == 4
  assert cifar100.find_official(tmp_path) is None


def test_tensorflow_is_never_imported(tmp_path, prepared):
  code = """
import sys
from mnemonics_jax.data import cifar100
cifar100.load(sys.argv[1], cache_dir=sys.argv[2], per_class={"train": 2, "test": 1})
assert "tensorflow_datasets" in sys.modules
assert "tensorflow" not in sys.modules
"""
  result = data_files.run_python("-c", code, prepared, tmp_path)
  assert result.returncode == 0, result.stderr


def test_incomplete_cifar_is_refused(tmp_path, prepared):
  message = "2 to 2 train images each, expected 100 with 500"
  with pytest.raises(data.DataError, match=message):
    data.load("cifar100", prepared, cache_dir=tmp_path)


@pytest.mark.skipif(
  not records.find(
    Path(os.environ.get("MNEMONICS_DATA_DIR") or "/no"), "cifar100"
  ),
  reason="MNEMONICS_DATA_DIR does not name a directory with CIFAR-100",
)
def test_real_cifar100(tmp_path, monkeypatch):
  dataset = data.load("cifar100", cache_dir=tmp_path)
  assert dataset.train_images.shape == (50000, 32, 32, 3)
  # Published statistics of the training set.
  mean = dataset.train_images.mean((0, 1, 2)) / 255
  np.testing.assert_allclose(mean, dataset.mean, atol=1e-4)
  assert dataset.class_names[:2] == ("apple", "aquarium_fish")
  assert dataset.class_names[99] == "worm"
  monkeypatch.setattr(cifar100, "_decode", None)  # The cache has them.
  again = data.load("cifar100", cache_dir=tmp_path)
  for field in dataclasses.fields(dataset):
    left, right = getattr(dataset, field.name), getattr(again, field.name)
    np.testing.assert_array_equal(left, right)


# Broken files: one sentence that names the directory and the fix.


ARCHIVE = "cifar-100-python.tar.gz"
RECORDS = "cifar100-test.tfrecord-00000-of-00001"
TRAIN = "cifar100-train.tfrecord-0000{}-of-0000{}"
DAMAGE = {
  "nothing": (
    "archive",
    lambda d: (d / ARCHIVE).unlink(),
    r"has no CIFAR-100.*`download`",
  ),
  "cut archive": (
    "archive",
    lambda d: os.truncate(d / ARCHIVE, (d / ARCHIVE).stat().st_size // 2),
    r"not a complete archive.*toronto",
  ),
  "other file": (
    "official",
    lambda d: shutil.copy(d / "train", d / "test"),
    r"/test is not the official file.*nothing in it was used.*new copy",
  ),
  "no names": (
    "official",
    lambda d: (d / "meta").unlink(),
    r"has no file meta; put a complete copy",
  ),
  "missing shard": (
    "tfrecord",
    lambda d: (d / TRAIN.format(1, 2)).unlink(),
    r"1 of 2 files of its train split; copy",
  ),
  "extra shard": (
    "tfrecord",
    lambda d: shutil.copy(d / TRAIN.format(0, 2), d / TRAIN.format(0, 5)),
    r"has 3 files .* be 2; .* extra",
  ),
  "missing split": (
    "tfrecord",
    lambda d: (d / RECORDS).unlink(),
    r"has no test split.*data\.prepare",
  ),
  "other format": (
    "tfrecord",
    lambda d: [
      path.rename(d / path.name.replace("tfrecord", "riegeli"))
      for path in d.glob("*tfrecord*")
    ],
    r"has no train split in a format.*data\.prepare",
  ),
  "cut records": (
    "tfrecord",
    lambda d: os.truncate(d / RECORDS, (d / RECORDS).stat().st_size - 1000),
    r"damaged .*truncated.*make it again",
  ),
  "99 labels": (
    "tfrecord",
    lambda d: (d / "label.labels.txt").write_text(
      "\n".join(map(str, range(99)))
    ),
    r"train labels are 0\.\.99, expected 0\.\.98",
  ),
  "equal labels": (
    "tfrecord",
    lambda d: (d / "label.labels.txt").write_text("same\n" * 100),
    r"two classes have the same name",
  ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_sentence(tmp_path, originals, load, damage):
  form, harm, said = DAMAGE[damage]
  here = shutil.copytree(originals[form], tmp_path / "here")
  harm(here)
  with pytest.raises(data.DataError) as error:
    load(here)
  assert error.value.field == "data_dir"
  assert re.search(said, str(error.value), re.DOTALL), error.value


@pytest.mark.parametrize("damage", ["nothing", "cut archive", None])
def test_the_command_says_so(
  tmp_path, originals, official, monkeypatch, damage
):
  """Exit code 2, and nothing is left behind; a whole directory is read."""
  form, harm, said = DAMAGE[damage or "cut records"]
  here = shutil.copytree(originals[form], tmp_path / "here")
  small = functools.partial(
    cifar100.load, md5=official[1], per_class=data_files.PER_CLASS
  )
  monkeypatch.setattr(cifar100, "load", small)
  flags = "--data_dir=here", "--phases=1", "--memory=per_class:1"
  if damage is None:  # Nothing but records and names is read.
    (here / "dataset_info.json").write_text("{ broken")
    with pytest.raises(command.Accepted):
      command.call("cifar", *flags, cwd=tmp_path)
    return
  harm(here)
  outcome = command.call("cifar", *flags, cwd=tmp_path)
  command.assert_refused(
    outcome, "--data_dir=here" if damage == "nothing" else "--data_dir"
  )
  assert re.search(
    said.replace("`download`", "--download"), outcome.err, re.DOTALL
  )


def test_nothing_found_is_one_message_at_once(tmp_path):
  code = """
import sys
from mnemonics_jax import data
try:
  data.load("cifar100", sys.argv[1])
except data.DataError as error:
  print(error)
for name in ("tensorflow", "tensorflow_datasets", "sklearn"):
  assert name not in sys.modules, name
"""
  result = data_files.run_python("-c", code, tmp_path)
  assert result.returncode == 0, result.stderr
  for part in (
    f"`data_dir={tmp_path}`",
    "cifar-100-python.tar.gz",
    "array_record",
    "`download`",
    "MNEMONICS_DATA_DIR",
    "mnemonics_jax.data.prepare",
  ):
    assert part in result.stdout
  start = time.perf_counter()
  with pytest.raises(data.DataError, match="does not exist"):
    data.load("cifar100", tmp_path / "none")
  assert time.perf_counter() - start < 0.5


def test_directory_from_environment(tmp_path, monkeypatch):
  monkeypatch.setenv("MNEMONICS_DATA_DIR", str(tmp_path / "environment"))
  assert data_directory(None) == tmp_path / "environment"
  assert data_directory("") == tmp_path / "environment"
  assert data_directory(tmp_path / "flag") == tmp_path / "flag"
  monkeypatch.delenv("MNEMONICS_DATA_DIR")
  monkeypatch.setenv("HOME", str(tmp_path))
  assert data_directory(None) == tmp_path / "tensorflow_datasets"


# Files that somebody made who means harm.


def test_unofficial_files_are_refused_unread(official, monkeypatch):
  def never(_):
    raise AssertionError("unpickled before the MD5 check")

  monkeypatch.setattr(cifar100, "unpickle", never)
  with pytest.raises(data.DataError, match="16019d7e3df5f24257cddd939b257f8d"):
    data.load("cifar100", official[0])


def test_the_stand_ins_of_the_unpickler_agree_with_the_real_one(
  official, expected
):
  root, _ = official
  with (root / "cifar-100-python/test").open("rb") as file:
    fields = pickle.load(file, encoding="bytes")
  first = fields[b"data"][0].reshape(3, 32, 32)
  np.testing.assert_array_equal(first[1], expected["test_images"][0, :, :, 1])
  value = {b"a": [1, b"x"], b"b": None}
  assert cifar100.unpickle(pickle.dumps(value)) == value


class _Call:
  def __reduce__(self):
    return (print, ("this was run",))


@pytest.mark.parametrize("value", [_Call(), {b"data": _Call()}, np.float32(1)])
def test_a_pickle_that_asks_for_anything_else_is_refused(value, capsys):
  with pytest.raises(pickle.UnpicklingError, match="it asks for"):
    cifar100.unpickle(pickle.dumps(value))
  assert not capsys.readouterr().out


def test_archives_are_not_unpacked(tmp_path, official):
  """Members that point outside or are links are neither written nor read."""
  files, md5 = official[0] / "cifar-100-python", official[1]
  outside = tmp_path / "outside"
  archive = tmp_path / "archive" / ARCHIVE
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
      member.type, member.linkname = kind, str(files / "train")
      tar.addfile(member)
    for name in ("test", "meta"):
      tar.add(files / name, f"cifar-100-python/{name}")
  with pytest.raises(data.DataError, match="no file train"):
    cifar100.read_official(archive, md5=md5)
  assert os.listdir(tmp_path) == ["archive"]
  assert os.listdir(archive.parent) == [archive.name]


def test_huge_images_in_records_are_refused_undecoded(
  tmp_path, originals, monkeypatch
):
  here = shutil.copytree(originals["tfrecord"], tmp_path / "3.0.2")
  data_files.write_bomb(tmp_path / "bomb.png", 5000, 5000)
  record = records.encode(
    id=b"bomb", label=0, image=(tmp_path / "bomb.png").read_bytes()
  )
  (here / RECORDS).write_bytes(data_files.framed(record))
  sizes, load = [], ImageFile.ImageFile.load
  monkeypatch.setattr(
    ImageFile.ImageFile,
    "load",
    lambda image: sizes.append(image.size) or load(image),
  )
  with pytest.raises(data.DataError, match=r"`data_dir`: .* damaged"):
    cifar100.read_tfds(here)
  assert set(sizes) == {(32, 32)}


# Downloading: TensorFlow Datasets does it, in a process of its own.


@pytest.fixture
def downloading(monkeypatch):
  """As if TensorFlow were installed, with another program for the process."""
  monkeypatch.setattr(cifar100.importlib.util, "find_spec", lambda _: True)
  return lambda name, value: monkeypatch.setattr(cifar100, name, value)


def test_download_says_what_is_missing(tmp_path, monkeypatch):
  monkeypatch.setattr(cifar100.importlib.util, "find_spec", lambda _: None)
  with pytest.raises(data.DataError, match=r"pip install -e '\.\[tf\]'"):
    data.load("cifar100", tmp_path, download=True)


def test_download_without_network_ends_soon(tmp_path, downloading):
  # Nothing listens on port 9 of this machine.
  downloading("URL", "http://127.0.0.1:9/cifar.tar.gz")
  start = time.perf_counter()
  with pytest.raises(data.DataError, match="cannot be reached"):
    data.load("cifar100", tmp_path, download=True)
  assert time.perf_counter() - start < 20


def test_download_that_fails_or_stalls_is_one_message(tmp_path, downloading):
  downloading("_FETCH", "raise OSError('disk full')")
  with pytest.raises(data.DataError, match=r"`download`: .*disk full") as error:
    data.load("cifar100", tmp_path, download=True)
  assert "Traceback" not in str(error.value)
  downloading("_FETCH", "import time; time.sleep(60)")
  downloading("_STALLED_SECONDS", 1)
  with pytest.raises(data.DataError, match="stalled"):
    data.load("cifar100", tmp_path, download=True)


def test_download_is_read_like_any_other(
  tmp_path, prepared, downloading, load, expected
):
  copy = f"shutil.copytree({str(prepared)!r}, sys.argv[2], dirs_exist_ok=True)"
  downloading("_FETCH", f"import shutil, sys; {copy}")
  data_files.assert_same_arrays(load(tmp_path / "new", download=True), expected)


# The official files become a directory that TensorFlow Datasets reads.


def test_prepared_directory_is_read_by_tfds(prepared, expected):
  import tensorflow_datasets as tfds

  source = tfds.data_source(
    "cifar100", split="train", data_dir=prepared, download=False
  )
  assert len(source) == 200
  written = tfds.builder_from_directory(prepared / "cifar100/3.0.2")
  features = written.info.features
  assert features["image"].shape == (32, 32, 3)
  assert features["coarse_label"].num_classes == 20
  example = next(e for e in source if e["id"] == b"train_00007")
  np.testing.assert_array_equal(example["image"], expected["train_images"][7])
  assert example["label"] == expected["train_labels"][7]
  assert example["coarse_label"] == expected["train_labels"][7] // 5


def test_prepare_never_overwrites_and_leaves_nothing_half(
  tmp_path, official, monkeypatch
):
  root, md5 = official
  target = tmp_path / "cifar100/3.0.2"
  target.mkdir(parents=True)
  (target / "precious").write_text("kept")
  with pytest.raises(data.DataError, match="exists and is left"):
    prepare.prepare_cifar100(root, tmp_path, md5=md5)
  assert [p.name for p in target.iterdir()] == ["precious"]

  def interrupted(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(prepare, "_compare", interrupted)
  with pytest.raises(KeyboardInterrupt):
    prepare.prepare_cifar100(root, tmp_path / "new", md5=md5)
  assert list((tmp_path / "new").iterdir()) == []


def test_prepare_detects_what_was_written_wrongly(
  tmp_path, official, monkeypatch
):
  root, md5 = official
  encode = records.encode

  def wrong(**fields):
    return encode(**fields | {"label": (fields["label"] + 1) % 100})

  monkeypatch.setattr(records, "encode", wrong)
  with pytest.raises(data.DataError, match="differs"):
    prepare.prepare_cifar100(root, tmp_path, md5=md5)
  assert list(tmp_path.iterdir()) == []


def test_progress_is_half_writing_and_half_reading_back(tmp_path, official):
  root, md5 = official
  heard = []
  prepare.prepare_cifar100(root, tmp_path, md5=md5, report=heard.append)
  assert [event.done for event in heard] == [*range(1, 301), 600]
  assert {event.total for event in heard} == {600}


def test_a_target_that_cannot_be_written_is_told(tmp_path, official):
  root, md5 = official
  occupied = tmp_path / "file"
  occupied.touch()
  with pytest.raises(data.DataError, match=r"`data_dir=.*cannot write"):
    prepare.prepare_cifar100(root, occupied / "below", md5=md5)
