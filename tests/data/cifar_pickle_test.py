"""The official files: found, checked, and never trusted."""

import pickle

import numpy as np
import pytest

from mnemonics_jax.data import DataError, cifar100


def test_it_is_found_in_its_forms(tmp_path, official):
  root, _ = official
  unpacked, archive = root / "cifar-100-python", root / "archive"
  assert (
    cifar100.find_official(root) == cifar100.find_official(unpacked) == unpacked
  )
  packed = archive / "cifar-100-python.tar.gz"
  assert (
    cifar100.find_official(archive) == cifar100.find_official(packed) == packed
  )
  assert cifar100.find_official(tmp_path) is None
  assert cifar100._official_files(packed) == [packed]
  assert {path.name for path in cifar100._official_files(unpacked)} == {
    *("train", "test", "meta")
  }


def test_both_forms_hold_the_same(official, expected):
  root, md5 = official
  for source in (
    root / "cifar-100-python", root / "archive/cifar-100-python.tar.gz"
  ):  # fmt: skip
    found = cifar100.read_official(source, md5=md5)
    np.testing.assert_array_equal(found.train.images, expected["train_images"])
    np.testing.assert_array_equal(found.test.labels, expected["test_labels"])
    assert len(found.class_names) == 100 and len(found.coarse_names) == 20


def test_another_sum_is_another_file(official):
  root, md5 = official
  source = root / "cifar-100-python"
  with pytest.raises(
    DataError, match=r"meta is not the official file"
  ) as error:
    cifar100.read_official(source, md5=md5 | {"meta": "0" * 32}, field="source")
  assert error.value.field == "source"


class _Call:
  def __reduce__(self):
    return (print, ("this was run",))


@pytest.mark.parametrize("value", [_Call(), {b"data": _Call()}, np.float32(1)])
def test_a_pickle_that_asks_for_anything_else_is_refused(value, capsys):
  with pytest.raises(pickle.UnpicklingError, match="it asks for"):
    cifar100.unpickle(pickle.dumps(value))
  assert not capsys.readouterr().out


def test_plain_values_are_read():
  value = {b"a": [1, b"x"], b"b": None}
  assert cifar100.unpickle(pickle.dumps(value)) == value
