"""A checkpoint comes back as it was written, or not at all."""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import damage

from mnemonics_jax import files, memory, methods
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.model import Model
from mnemonics_jax.runs import checkpoint, journal
from mnemonics_jax.types import PhaseState

TREE = {
  "a": {"b": np.arange(6.0, dtype=np.float32).reshape(2, 3)},
  "images": np.arange(256, dtype=np.uint8),
  "count": np.array(3),
}

# Patterns, separators of other systems, and what is no text at all.
ODD_NAMES = ("[1]", "*", "?", "a\\b", "{a,1}", "line\n", "\udcff")


@pytest.fixture
def saved(tmp_path):
  checkpoint.save(tmp_path / "saved", TREE, {"phase": 1, "records": [{}]})
  return tmp_path / "saved"


def test_arrays_and_info_come_back(saved):
  tree, info = checkpoint.restore(saved)
  assert info == {"phase": 1, "records": [{}]}
  assert jax.tree.structure(tree) == jax.tree.structure(TREE)
  for found, written in zip(
    jax.tree.leaves(tree), jax.tree.leaves(TREE), strict=True
  ):
    assert isinstance(found, np.ndarray) and found.dtype == written.dtype
    np.testing.assert_array_equal(found, written)


def test_arrays_of_a_device_come_back_as_those_of_the_host(tmp_path):
  checkpoint.save(tmp_path / "saved", {"a": jnp.full(3, 0.1, jnp.bfloat16)})
  tree, info = checkpoint.restore(tmp_path / "saved")
  assert tree["a"].dtype == jnp.bfloat16 and info == {}
  assert tree["a"].tobytes() == np.full(3, 0.1, jnp.bfloat16).tobytes()


def test_large_arrays_are_mapped_and_checked_like_others(tmp_path, monkeypatch):
  monkeypatch.setattr(checkpoint, "_LARGE", 200)
  path = tmp_path / "saved"
  checkpoint.save(path, TREE | {"deep": {"er": np.arange(99)}}, {"phase": 1})
  files = sorted(file.name for file in (path / "large").iterdir())
  assert files == ["deep.er.npy", "images.npy"]
  tree, info = checkpoint.restore(path)
  assert isinstance(tree["images"], np.memmap) and info == {"phase": 1}
  np.testing.assert_array_equal(tree["images"], TREE["images"])
  np.testing.assert_array_equal(tree["deep"]["er"], np.arange(99))
  np.testing.assert_array_equal(tree["a"]["b"], TREE["a"]["b"])
  monkeypatch.setattr(checkpoint, "_LARGE", 2**28)  # Nothing else tells them.
  assert checkpoint.restore(path)[0]["images"].shape == (256,)
  content = (path / "large/images.npy").read_bytes()
  (path / "large/images.npy").write_bytes(content[:-1] + b"x")
  with pytest.raises(checkpoint.Damaged, match=r"large/images\.npy changed"):
    checkpoint.restore(path)


def test_the_size_is_that_of_the_files(tmp_path):
  size = checkpoint.save(tmp_path / "saved", TREE)
  files = [p for p in (tmp_path / "saved").rglob("*") if p.is_file()]
  assert size == sum(len(file.read_bytes()) for file in files)
  listed = json.loads((tmp_path / "saved" / "manifest.json").read_text())
  assert len(listed["files"]) == len(files) - 1


@pytest.mark.parametrize("harm", damage.ALL)
def test_damage_is_found(saved, harm):
  harm(saved)
  with pytest.raises(checkpoint.Damaged, match=r"saved is damaged") as error:
    checkpoint.restore(saved)
  assert error.value.path == saved


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"files": 3}', "\0"])
def test_a_manifest_that_is_none_is_damage(saved, manifest):
  (saved / "manifest.json").write_text(manifest)
  with pytest.raises(checkpoint.Damaged):
    checkpoint.restore(saved)


def test_a_save_that_fails_leaves_nothing(tmp_path, monkeypatch):
  def fail(*_, **__):
    raise OSError("No space left on device")

  monkeypatch.setattr(files, "sync", fail)
  with pytest.raises(OSError, match="No space"):
    checkpoint.save(tmp_path / "saved", TREE)
  assert list(tmp_path.iterdir()) == []


def test_an_error_of_orbax_is_one_of_the_disk(saved, monkeypatch):
  def fail(*_, **__):
    raise ValueError("unknown codec")

  monkeypatch.setattr(checkpoint.ocp.Checkpointer, "restore", fail)
  with pytest.raises(OSError, match="Orbax could not read it: unknown codec"):
    checkpoint.restore(saved)


def test_a_cifar_checkpoint_stays_small(tmp_path):
  model = Model(networks.resnet32(), methods.LUCIR().head, 100)
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (2000, 32, 32, 3), np.uint8)
  labels = np.repeat(np.arange(100), 20)
  kept = memory.store(memory.empty(100, (32, 32, 3)), images, labels)
  key = jax.random.key(0)
  state = PhaseState(model.init(key), kept, key, 6, 100)
  size = checkpoint.save(tmp_path / "phase_05", journal.pack_state(state))
  assert 6e6 < size < 30e6


def test_a_path_may_have_any_name(tmp_path):
  """Orbax takes some characters for patterns and others for separators."""
  (tmp_path / "1").mkdir()  # What the pattern would find.
  for number, name in enumerate(ODD_NAMES):
    path = tmp_path / name / "saved"
    checkpoint.save(path, {"a": np.full(2, number)}, {"n": number})
    tree, info = checkpoint.restore(path)
    assert (tree["a"].tolist(), info) == ([number] * 2, {"n": number})
  assert sorted(tmp_path.iterdir()) == sorted(
    tmp_path / name for name in ("1", *ODD_NAMES)
  )


def test_what_cannot_be_read_back_is_no_checkpoint(tmp_path, monkeypatch):
  read = checkpoint._read_arrays

  def wrong(path):
    return read(path) | {"count": np.array(4)}

  def lacking(path):
    return {name: leaf for name, leaf in read(path).items() if name != "a"}

  def failing(_):
    raise ValueError("not found")

  for reader in (wrong, lacking, failing):
    monkeypatch.setattr(checkpoint, "_read_arrays", reader)
    with pytest.raises(OSError, match="could not be read back"):
      checkpoint.save(tmp_path / "saved", TREE)
    assert list(tmp_path.iterdir()) == []


def test_of_large_arrays_the_structure_is_read_back(tmp_path, monkeypatch):
  monkeypatch.setattr(checkpoint, "_READ_BACK_BYTES", 10)
  monkeypatch.setattr(checkpoint, "_read_arrays", None)
  checkpoint.save(tmp_path / "saved", TREE)
  structure = checkpoint._structure
  monkeypatch.setattr(
    checkpoint, "_structure", lambda path: structure(path) | {"a": None}
  )
  with pytest.raises(OSError, match="could not be read back"):
    checkpoint.save(tmp_path / "other", TREE)


def test_a_checkpoint_knows_where_it_belongs(tmp_path):
  place = {"run": "ab12", "seed": 0, "phase": 2, "part": None}
  checkpoint.save(tmp_path / "saved", TREE, place=place)
  checkpoint.restore(tmp_path / "saved", place)
  checkpoint.restore(tmp_path / "saved")  # Whoever does not care.
  for name, other in (("run", "cd"), ("seed", 1), ("phase", 1), ("part", 3)):
    with pytest.raises(checkpoint.Damaged, match=f"written for {name} "):
      checkpoint.restore(tmp_path / "saved", place | {name: other})


def test_the_info_alone_is_checked_alone(saved):
  assert checkpoint.restore_info(saved) == {"phase": 1, "records": [{}]}
  damage.flip_a_bit(saved)  # Of an array.
  assert checkpoint.restore_info(saved)["phase"] == 1
  (saved / "info.json").write_text("{}")
  with pytest.raises(checkpoint.Damaged, match=r"info\.json changed"):
    checkpoint.restore_info(saved)


def test_a_checkpoint_of_before_belongs_anywhere(saved):
  checkpoint.restore(saved, {"seed": 3})


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
  checkpoint.save(tmp_path / "new" / "saved", TREE)
  assert synced == [tmp_path / "new"]
