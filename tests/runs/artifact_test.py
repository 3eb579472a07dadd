"""A directory of arrays comes back as it was written, or not at all.

The contract is one for checkpoints, saved learners, cached base models, exports and
published models. `drafts_test.py` kills a save at every step, which is the same for
all of them.
"""

import asyncio
from collections.abc import Callable
import errno
import itertools
import json
import logging
import os
from pathlib import Path
import shutil
import sys
import threading
from typing import Any, NamedTuple
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import load_file
from safetensors.numpy import save as save_tensors
from support import damage, saved_learner

from mnemonics_jax import Learner, UserError, files, memory, methods, runs
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.model import Model
from mnemonics_jax.runs import artifact, base_models, drafts, journal
from mnemonics_jax.types import PhaseState

MUSEUM = Path(__file__).parents[1] / "museum"
TREE = {
  "a": {"b": np.arange(6.0, dtype=np.float32).reshape(2, 3)},
  "images": np.arange(256, dtype=np.uint8),
  "count": np.array(3),
}
INFO: dict[str, Any] = {"phase": 1, "records": [{}]}


# The contract.


class Maker(NamedTuple):
  """One kind of directory.

  Attributes:
    write: writes one to a path.
    read: reads it; equal values for equal directories.
    open_to_all: whether files may be added.
  """

  write: Callable[[Path], Any]
  read: Callable[[Path], Any]
  open_to_all: bool = False


def comparable(tree, *more):
  flat = artifact.flatten(tree)
  return {name: (x.dtype, x.shape, x.tobytes()) for name, x in flat}, more


def read_learner(path):
  learner, known = Learner.load(path)
  tree = journal.pack_state(known.state)
  return comparable(tree, learner, known.names, known.phases)


def write_learner(path):
  learner, known = Learner.load(saved_learner.write(path.with_name("source")))
  shutil.rmtree(path.with_name("source"))
  learner.save(known, path)


def write_export(path):
  learner, known = Learner.load(saved_learner.write(path.with_name("source")))
  shutil.rmtree(path.with_name("source"))
  runs.export(learner, known, path)


def write_published(path):
  words = {
    "format": 1, "numerics": 2, "dataset": "tiny", "class_names": ["a"],
    "accuracy": {}, "made_with": [],
  }  # fmt: skip
  artifact.save(path, {"params": TREE}, words, kind=artifact.PUBLISHED)


def read_published(path):
  model = base_models.load(path)
  return comparable(model.variables, model.about)


def of_tree(kind):
  place = {"name": "here"}
  return Maker(
    lambda path: artifact.save(path, TREE, INFO, place, kind=kind),
    lambda path: comparable(*artifact.restore(path, place, kind)),
  )


def of_museum(name, read):
  return Maker(lambda path: shutil.copytree(MUSEUM / name, path), read)


(_OLD_MODEL,) = (MUSEUM / "base_models").iterdir()
KINDS = {
  "checkpoint": of_tree(artifact.CHECKPOINT),
  "learner": Maker(write_learner, read_learner),
  "base model": of_tree(artifact.BASE_MODEL),
  "export": Maker(write_export, read_learner, open_to_all=True),
  "published": Maker(write_published, read_published, open_to_all=True),
  # Of version 0.1, with arrays as Orbax writes them.
  "old learner": of_museum("learner", read_learner),
  "old base model": of_museum(
    f"base_models/{_OLD_MODEL.name}",
    lambda path: comparable(*artifact.restore(path, kind=artifact.BASE_MODEL)),
  ),
}


def pieces(path):
  return [file for file in sorted(path.rglob("*")) if file.is_file()]


def truncate(path):
  for file in pieces(path):
    if size := file.stat().st_size:
      yield file, lambda file=file, size=size: os.truncate(file, size // 2)


def flip(path):
  for file in pieces(path):
    if content := bytearray(file.read_bytes()):
      content[len(content) // 2] ^= 1
      yield file, lambda f=file, c=bytes(content): f.write_bytes(c)


def empty(path):
  for file in pieces(path):
    if file.stat().st_size:
      yield file, lambda file=file: os.truncate(file, 0)


def delete(path):
  for file in pieces(path):
    yield file, file.unlink


def swap(path):
  """Each with the next one, if they differ."""
  there = pieces(path)
  for file, other in itertools.pairwise(there):
    content = file.read_bytes(), other.read_bytes()

    def exchange(file=file, other=other, content=content):
      file.write_bytes(content[1])
      other.write_bytes(content[0])

    if content[0] != content[1]:
      yield file, exchange


ATTACKS = {a.__name__: a for a in (truncate, flip, empty, delete, swap)}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
  home = tmp_path_factory.mktemp("written")
  for name, kind in KINDS.items():
    kind.write(home / name)
  return home


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", KINDS)
def test_damage_of_any_file_is_refused_in_words(
  written, tmp_path, name, attack
):
  expected, harmed = KINDS[name].read(written / name), 0
  path = shutil.copytree(written / name, tmp_path / "copy")
  for file, harm in [*ATTACKS[attack](path)]:
    kept = {other: other.read_bytes() for other in pieces(path)}
    harm()
    with pytest.raises((UserError, artifact.Damaged)) as error:
      KINDS[name].read(path)
    assert any(
      word in str(error.value)
      for word in ("damaged", "not a published", "nothing")
    ), (file, error.value)
    for other, content in kept.items():
      other.write_bytes(content)
    harmed += 1
  assert harmed and KINDS[name].read(path) == expected


@pytest.mark.parametrize("name", KINDS)
def test_an_added_file_is_damage_unless_others_may_add_some(
  written, tmp_path, name
):
  path = shutil.copytree(written / name, tmp_path / "copy")
  (path / "stray").write_text("more")
  if KINDS[name].open_to_all:
    assert KINDS[name].read(path) == KINDS[name].read(written / name)
  else:
    with pytest.raises((UserError, artifact.Damaged), match="stray changed"):
      KINDS[name].read(path)


@pytest.mark.parametrize(
  "manifest",
  ["", "[]", "{}", '{"files": 3}', "\0", "[" * 200_000],
  ids=range(6),
)
@pytest.mark.parametrize("name", KINDS)
def test_a_manifest_that_is_none_is_damage(written, tmp_path, name, manifest):
  path = shutil.copytree(written / name, tmp_path / "copy")
  (path / "manifest.json").write_text(manifest)
  with pytest.raises((UserError, artifact.Damaged), match="is damaged"):
    KINDS[name].read(path)


@pytest.mark.parametrize("name", KINDS)
def test_a_newer_format_is_refused_with_its_remedy(written, tmp_path, name):
  path = shutil.copytree(written / name, tmp_path / "copy")
  manifest = json.loads((path / "manifest.json").read_text())
  manifest["format"] = 99
  (path / "manifest.json").write_text(json.dumps(manifest))
  with pytest.raises(
    UserError, match="has format 99, and this version"
  ) as error:
    KINDS[name].read(path)
  assert "install the version that wrote it" in error.value.fix


@pytest.mark.parametrize("name", [n for n in KINDS if "old" not in n])
def test_a_save_that_fails_leaves_nothing(tmp_path, monkeypatch, name):
  """At the first sync, at a later one, and where it gets its name."""
  full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
  count, sync, rename = 0, files.sync, os.rename

  def failing(path):
    nonlocal count
    count -= 1
    if not count:
      raise full
    sync(path)

  def unnamed(old, new):
    if str(old).endswith(".draft"):
      raise full
    return rename(old, new)

  for count in (1, 3, 10**9):
    with (
      monkeypatch.context() as patch,
      pytest.raises((OSError, UserError)) as e,
    ):
      patch.setattr(drafts.files, "sync", failing)
      if count == 10**9:
        patch.setattr(os, "rename", unnamed)
      KINDS[name].write(tmp_path / "saved")
    assert "No space left on device" in str(e.value)
    assert not [p for p in tmp_path.iterdir() if p.name != "source"]
    shutil.rmtree(tmp_path / "source", ignore_errors=True)


@pytest.mark.parametrize("name", KINDS)
def test_it_belongs_where_it_was_written_for(written, name):
  if "model" not in name and name != "checkpoint":
    pytest.skip("it may lie anywhere")
  kind = artifact.CHECKPOINT if name == "checkpoint" else artifact.BASE_MODEL
  artifact.restore(written / name, kind=kind)  # Whoever does not care.
  with pytest.raises(artifact.Misplaced, match="it was written for name "):
    artifact.restore(written / name, {"name": "elsewhere"}, kind)


def test_exports_and_published_models_of_version_0_1_have_one_checksum(
  tmp_path,
):
  """No manifest: their arrays are checked, the rest is read as it is."""
  (published,) = (MUSEUM / "published").iterdir()
  for source, arrays, read in (
    (MUSEUM / "export", "model.safetensors", read_learner),
    (published, "model.safetensors", read_published),
  ):
    path = shutil.copytree(source, tmp_path / source.name)
    assert not (path / "manifest.json").exists()
    read(path)
    os.truncate(path / arrays, 100)
    with pytest.raises(
      UserError, match=r"damaged \(model\.safetensors changed"
    ):
      read(path)


def test_arrays_behind_a_link_are_not_read(written, tmp_path):
  """No checksum covers them, also if whoever made it has counted the others."""
  path = shutil.copytree(written / "old learner", tmp_path / "linked")
  (path / "arrays").rename(tmp_path / "elsewhere")
  (path / "arrays").symlink_to(tmp_path / "elsewhere")
  manifest = json.loads((path / "manifest.json").read_text())
  kept = {"info.json": manifest["files"]["info.json"]}
  (path / "manifest.json").write_text(json.dumps(manifest | {"files": kept}))
  with pytest.raises(UserError, match=r"is damaged \(a link leads out of it"):
    Learner.load(path)


# Safetensors.


def test_safetensors_are_those_of_the_library(tmp_path):
  arrays = {
    "b/é": np.arange(3, dtype=np.int64),
    "a": np.ones((2, 0), np.float32),
    "c": np.float64(0.5),
    "d": np.array([True, False]),
    "e": np.arange(5, dtype=np.uint8)[::2],
    "f": np.arange(6, dtype=np.float16).reshape(2, 3).T,
  }
  arrays = {name: np.asarray(array) for name, array in arrays.items()}
  artifact._write_tensors(tmp_path / "file", arrays)
  plain = {n: np.array(x, order="C") for n, x in arrays.items()}
  assert (tmp_path / "file").read_bytes() == save_tensors(plain)
  for found in (
    load_file(tmp_path / "file"), artifact._read_tensors(tmp_path / "file")
  ):  # fmt: skip
    assert found.keys() == arrays.keys()
    for name, array in found.items():
      assert array.dtype == arrays[name].dtype
      np.testing.assert_array_equal(array, arrays[name])


@pytest.mark.parametrize(
  "change",
  [
    dict(data_offsets=[0, 10**12]), dict(shape=[10**12]), dict(dtype="object"),
    dict(dtype="F99"), dict(data_offsets=["0", "8"]), dict(shape=None),
  ],
  ids=str,
)  # fmt: skip
def test_a_header_that_lies_is_damage(tmp_path, change):
  """Also if whoever made it has counted its checksum."""
  path = tmp_path / "saved"
  artifact.save(path, {"a": np.arange(2.0)}, kind=artifact.BASE_MODEL)
  header = {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]} | change
  text = json.dumps({"a": header}).encode()
  file = path / "arrays.safetensors"
  file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
  manifest = json.loads((path / "manifest.json").read_text())
  manifest["files"][file.name] = artifact._checksum(file)
  (path / "manifest.json").write_text(json.dumps(manifest))
  with pytest.raises(artifact.Damaged):
    artifact.restore(path, kind=artifact.BASE_MODEL)


def test_large_arrays_of_a_learner_are_mapped(tmp_path, monkeypatch):
  monkeypatch.setattr(artifact, "_LARGE", 200)
  artifact.save(tmp_path / "saved", TREE, kind=artifact.LEARNER)
  tree, _ = artifact.restore(tmp_path / "saved", kind=artifact.LEARNER)
  assert isinstance(tree["images"], np.memmap)
  assert not isinstance(tree["count"], np.memmap)
  assert comparable(tree) == comparable(TREE)


# Checkpoints, which Orbax writes.


# Patterns, separators of other systems, and what is no text at all.
ODD_NAMES = ("[1]", "*", "?", "a\\b", "{a,1}", "line\n", "\udcff")


@pytest.fixture
def saved(tmp_path):
  artifact.save(tmp_path / "saved", TREE, {"phase": 1, "records": [{}]})
  return tmp_path / "saved"


def test_arrays_and_info_come_back(saved):
  tree, info = artifact.restore(saved)
  assert info == {"phase": 1, "records": [{}]}
  assert jax.tree.structure(tree) == jax.tree.structure(TREE)
  for found, written in zip(
    jax.tree.leaves(tree), jax.tree.leaves(TREE), strict=True
  ):
    assert isinstance(found, np.ndarray) and found.dtype == written.dtype
    np.testing.assert_array_equal(found, written)


def test_arrays_of_a_device_come_back_as_those_of_the_host(tmp_path):
  artifact.save(tmp_path / "saved", {"a": jnp.full(3, 0.1, jnp.bfloat16)})
  tree, info = artifact.restore(tmp_path / "saved")
  assert tree["a"].dtype == jnp.bfloat16 and info == {}
  assert tree["a"].tobytes() == np.full(3, 0.1, jnp.bfloat16).tobytes()


def test_large_arrays_are_mapped_and_checked_like_others(tmp_path, monkeypatch):
  monkeypatch.setattr(artifact, "_LARGE", 200)
  path = tmp_path / "saved"
  artifact.save(path, TREE | {"deep": {"er": np.arange(99)}}, {"phase": 1})
  files = sorted(file.name for file in (path / "large").iterdir())
  assert files == ["deep.er.npy", "images.npy"]
  tree, info = artifact.restore(path)
  assert isinstance(tree["images"], np.memmap) and info == {"phase": 1}
  np.testing.assert_array_equal(tree["images"], TREE["images"])
  np.testing.assert_array_equal(tree["deep"]["er"], np.arange(99))
  np.testing.assert_array_equal(tree["a"]["b"], TREE["a"]["b"])
  monkeypatch.setattr(artifact, "_LARGE", 2**28)  # Nothing else tells them.
  assert artifact.restore(path)[0]["images"].shape == (256,)
  content = (path / "large/images.npy").read_bytes()
  (path / "large/images.npy").write_bytes(content[:-1] + b"x")
  with pytest.raises(artifact.Damaged, match=r"large/images\.npy changed"):
    artifact.restore(path)


def test_the_size_is_that_of_the_files(tmp_path):
  size = artifact.save(tmp_path / "saved", TREE)
  files = [p for p in (tmp_path / "saved").rglob("*") if p.is_file()]
  assert size == sum(len(file.read_bytes()) for file in files)
  listed = json.loads((tmp_path / "saved" / "manifest.json").read_text())
  assert len(listed["files"]) == len(files) - 1


def test_an_error_of_orbax_is_one_of_the_disk(saved, monkeypatch):
  def fail(*_, **__):
    raise ValueError("unknown codec")

  monkeypatch.setattr(ocp.Checkpointer, "restore", fail)
  with pytest.raises(OSError, match="Orbax could not read it: unknown codec"):
    artifact.restore(saved)


def test_a_cifar_checkpoint_stays_small(tmp_path):
  model = Model(networks.resnet32(), methods.LUCIR().head, 100)
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (2000, 32, 32, 3), np.uint8)
  labels = np.repeat(np.arange(100), 20)
  kept = memory.store(memory.empty(100, (32, 32, 3)), images, labels)
  key = jax.random.key(0)
  state = PhaseState(model.init(key), kept, key, 6, 100)
  size = artifact.save(tmp_path / "phase_05", journal.pack_state(state))
  assert 6e6 < size < 30e6


def test_a_path_may_have_any_name(tmp_path):
  """Orbax takes some characters for patterns and others for separators."""
  (tmp_path / "1").mkdir()  # What the pattern would find.
  for number, name in enumerate(ODD_NAMES):
    path = tmp_path / name / "saved"
    artifact.save(path, {"a": np.full(2, number)}, {"n": number})
    tree, info = artifact.restore(path)
    assert (tree["a"].tolist(), info) == ([number] * 2, {"n": number})
  assert sorted(tmp_path.iterdir()) == sorted(
    tmp_path / name for name in ("1", *ODD_NAMES)
  )


def test_what_cannot_be_read_back_is_no_checkpoint(tmp_path, monkeypatch):
  read = artifact._read_arrays

  def wrong(path):
    return read(path) | {"count": np.array(4)}

  def lacking(path):
    return {name: leaf for name, leaf in read(path).items() if name != "a"}

  def failing(_):
    raise ValueError("not found")

  for reader in (wrong, lacking, failing):
    monkeypatch.setattr(artifact, "_read_arrays", reader)
    with pytest.raises(OSError, match="could not be read back"):
      artifact.save(tmp_path / "saved", TREE)
    assert list(tmp_path.iterdir()) == []


def test_of_large_arrays_the_structure_is_read_back(tmp_path, monkeypatch):
  monkeypatch.setattr(artifact, "_READ_BACK_BYTES", 10)
  monkeypatch.setattr(artifact, "_read_arrays", None)
  artifact.save(tmp_path / "saved", TREE)
  structure = artifact._structure
  monkeypatch.setattr(
    artifact, "_structure", lambda path: structure(path) | {"a": None}
  )
  with pytest.raises(OSError, match="could not be read back"):
    artifact.save(tmp_path / "other", TREE)


def test_the_info_alone_is_checked_alone(saved):
  assert artifact.restore_info(saved) == {"phase": 1, "records": [{}]}
  damage.flip_a_bit(saved)  # Of an array.
  assert artifact.restore_info(saved)["phase"] == 1
  (saved / "info.json").write_text("{}")
  with pytest.raises(artifact.Damaged, match=r"info\.json changed"):
    artifact.restore_info(saved)


def test_a_checkpoint_of_before_belongs_anywhere(saved):
  artifact.restore(saved, {"seed": 3})


def test_all_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
  synced, rename = [], os.rename
  monkeypatch.setattr(files, "sync", synced.append)

  def renamed(old, new):
    if not Path(old).name.endswith(".draft"):
      return rename(old, new)  # One of Orbax's own.
    everything = {old, *old.rglob("*")}
    assert everything <= set(synced)
    # The names in a directory after what they name.
    for path in everything - {old}:
      assert synced.index(path) < synced.index(path.parent)
    synced.clear()
    return rename(old, new)

  monkeypatch.setattr(os, "rename", renamed)
  artifact.save(tmp_path / "new" / "saved", TREE)
  assert synced == [tmp_path / "new"]


# Threads of Orbax.


def _complain():
  """In every way in which a thread of Orbax does."""
  logging.getLogger("absl").error("it failed")
  logging.getLogger("asyncio").error("it failed")
  asyncio.sleep(0)  # A coroutine that nobody awaits.
  raise ValueError("it failed")


def _run_thread():
  thread = threading.Thread(target=_complain)
  thread.start()
  thread.join()


def test_threads_say_nothing_and_the_exception_passes(capfd):
  with pytest.raises(OSError, match="full"), artifact.other_threads():
    _run_thread()
    raise OSError("full")
  assert capfd.readouterr() == ("", "")


def test_everything_is_as_before_afterwards(capfd):
  hooks = lambda: (sys.excepthook, sys.unraisablehook, threading.excepthook)
  before, filters = hooks(), [*warnings.filters]
  with artifact.other_threads():
    assert hooks() != before
  assert hooks() == before
  assert warnings.filters == filters
  assert not logging.getLogger("absl").disabled
