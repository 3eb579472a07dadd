"""Arrays of a phase come back, and damage is told in a sentence."""

import numpy as np
import pytest

from mnemonics_jax.runs import layout, phase_arrays
from mnemonics_jax.runs.layout import WorkdirError


def _write(workdir, **changes):
  """12 classes have been seen, each with 3 images."""
  images = np.arange(36 * 2 * 2 * 3).reshape(36, 2, 2, 3) % 251 + 1
  labels = np.repeat(np.arange(12), 3)
  features = np.random.default_rng(0).normal(size=(36, 5))
  arguments = dict(
    seen=12,
    memory=(images.astype(np.uint8), labels),
    confusion={"final": {"head": np.eye(12, dtype=np.int64)}},
    changed={"adjust": (np.arange(36), np.arange(36) + 100, labels)},
    test_features=(features, labels),
    exemplar_features=(features[::3], labels[::3]),
  )
  phase_arrays.write_phase_arrays(workdir, 1, 2, **{**arguments, **changes})
  return features


def test_arrays_come_back(tmp_path):
  features = _write(tmp_path)
  arrays = phase_arrays.read_phase_arrays(tmp_path, 1, 2)
  assert (tmp_path / "seed_1" / "phase_02.npz").exists()
  assert arrays["memory/images"].shape == (12, 3, 2, 2, 3)
  assert arrays["memory/images"].dtype == np.uint8
  # 12 numbers in an image, 36 in a class.
  assert arrays["memory/images"][4, 2, 0, 0].tolist() == [169, 170, 171]
  np.testing.assert_array_equal(arrays["memory/counts"], [3] * 12)
  np.testing.assert_array_equal(arrays["confusion/final/head"], np.eye(12))
  # Two images of each of the first ten classes.
  shown = [row for label in range(10) for row in (3 * label, 3 * label + 1)]
  np.testing.assert_array_equal(arrays["changed/adjust/before"], shown)
  np.testing.assert_array_equal(
    arrays["changed/adjust/after"] - arrays["changed/adjust/before"], [100] * 20
  )
  np.testing.assert_array_equal(
    arrays["changed/adjust/labels"], np.repeat(np.arange(10), 2)
  )
  np.testing.assert_array_equal(
    arrays["features/test"], features.astype(np.float16)
  )
  np.testing.assert_array_equal(
    arrays["features/test_labels"], np.repeat(np.arange(12), 3)
  )
  np.testing.assert_array_equal(
    arrays["features/exemplars_labels"], np.arange(12)
  )


def test_of_a_large_memory_the_first_of_each_class_are_kept(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(phase_arrays, "_MEMORY", 3 * 2 * 12)  # Two for each of 3.
  images = np.arange(1, 7, dtype=np.uint8).repeat(12).reshape(6, 2, 2, 3)
  labels = np.array([0, 0, 0, 0, 2, 2])
  _write(tmp_path, seen=3, memory=(images, labels))
  arrays = phase_arrays.read_phase_arrays(tmp_path, 1, 2, "memory")
  assert arrays["memory/counts"].tolist() == [4, 0, 2]
  first = arrays["memory/images"][..., 0, 0, 0].tolist()
  assert first == [[1, 2], [0, 0], [5, 6]]


def test_of_each_class_the_first_features_are_kept(tmp_path):
  # Classes 1 and 0 by turns, 40 images of each.
  labels = np.tile([1, 0], 40)
  features = np.arange(80.0)[:, None]
  _write(
    tmp_path,
    test_features=(features, labels),
    exemplar_features=(features, labels),
  )
  arrays = phase_arrays.read_phase_arrays(tmp_path, 1, 2, "features/")
  for name, each in (("test", 30), ("exemplars", 10)):
    kept, of = (arrays[f"features/{name}{end}"] for end in ("", "_labels"))
    assert of.tolist() == [0] * each + [1] * each
    assert kept[:, 0].tolist() == [
      *range(1, 2 * each, 2),
      *range(0, 2 * each, 2),
    ]
  # There may be test images of none.
  _write(tmp_path, test_features=(features[:0], labels[:0]))
  arrays = phase_arrays.read_phase_arrays(tmp_path, 1, 2, "features/")
  assert arrays["features/test"].shape == (0, 1)


def test_arrays_have_the_names_that_are_written_down(tmp_path):
  _write(tmp_path)
  words = {"final": "MOMENT", "head": "READOUT", "adjust": "STAGE"}
  found = {
    "/".join(words.get(part, part) for part in name.split("/"))
    for name in phase_arrays.read_phase_arrays(tmp_path, 1, 2)
  }
  assert found == layout.PHASE_ARRAYS.keys()


def test_equal_arrays_are_equal_files(tmp_path):
  _write(tmp_path / "one")
  _write(tmp_path / "two")
  one, two = (
    layout.phase_arrays_path(tmp_path / name, 1, 2).read_bytes()
    for name in ("one", "two")
  )
  assert one == two


def test_arrays_by_prefix_and_none_at_all(tmp_path):
  _write(tmp_path)
  found = phase_arrays.read_phase_arrays(tmp_path, 1, 2, "memory/")
  assert sorted(found) == ["memory/counts", "memory/images"]
  assert phase_arrays.read_phase_arrays(tmp_path, 1, 3) == {}


def test_arrays_with_any_byte_changed_never_pass_for_others(tmp_path):
  _write(tmp_path)
  path = layout.phase_arrays_path(tmp_path, 1, 2)
  whole, good = (
    path.read_bytes(),
    phase_arrays.read_phase_arrays(tmp_path, 1, 2),
  )
  random = np.random.default_rng(0)
  refused = 0
  for place in random.choice(len(whole), 300, replace=False):
    damaged = bytearray(whole)
    damaged[place] ^= 1 << random.integers(8)
    path.write_bytes(damaged)
    try:
      found = phase_arrays.read_phase_arrays(tmp_path, 1, 2)
    except WorkdirError as error:
      refused += 1
      assert "phase_02.npz is damaged" in str(error)
      continue
    # A name or a date may have changed, which no checksum covers.
    for name in found.keys() & good.keys():
      np.testing.assert_array_equal(found[name], good[name])
  assert refused > 100


@pytest.mark.parametrize("size", [0, 10, 500])
def test_half_an_archive_gets_a_sentence(tmp_path, size):
  _write(tmp_path)
  path = layout.phase_arrays_path(tmp_path, 1, 2)
  path.write_bytes(path.read_bytes()[:size])
  with pytest.raises(WorkdirError, match=r"phase_02\.npz is damaged"):
    phase_arrays.read_phase_arrays(tmp_path, 1, 2)


def test_one_array_is_no_archive(tmp_path):
  path = layout.phase_arrays_path(tmp_path, 0, 0)
  path.parent.mkdir()
  with path.open("wb") as file:
    np.save(file, np.zeros(3))
  with pytest.raises(WorkdirError, match=r"phase_00\.npz is damaged"):
    phase_arrays.read_phase_arrays(tmp_path, 0, 0)
