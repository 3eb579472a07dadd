"""The official files become a TFDS directory, or nothing at all."""

import numpy as np
import pytest

from mnemonics_jax import data
from mnemonics_jax.data import prepare, records


def test_prepared_directory_is_read_by_tfds(prepared, expected):
  import tensorflow_datasets as tfds

  source = tfds.data_source(
    "cifar100", split="train", data_dir=prepared, download=False
  )
  assert len(source) == 200
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
