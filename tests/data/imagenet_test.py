"""A prepared ImageNet: its classes, and images that workers read."""

import pytest
from support import imagenet

from mnemonics_jax import data


def load(root, **options):
  return data.load("imagenet", root, image_size=16, **options)


def test_labels_follow_the_sorted_classes(prepared_imagenet):
  loaded = load(prepared_imagenet, workers=0)
  assert loaded.class_names == imagenet.WNIDS
  assert loaded.train_labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
  assert loaded.test_labels.tolist() == [0, 0, 1, 1, 2, 2]
  assert loaded.image_shape == (16, 16, 3)
  assert data.stream(loaded, phases=2).class_sizes == (4, 4, 4)


@pytest.mark.parametrize(
  "options, said",
  [
    (dict(workers=-1), "`workers=-1` cannot be used; choose 0 to"),
    (dict(decoder="cv2"), "`decoder=cv2` is not known; choose pillow or"),
    (dict(image_size=4), "`image_size=4` cannot be used; choose 8 to 1024"),
  ],
)
def test_options_that_cannot_be_used(prepared_imagenet, options, said):
  with pytest.raises(data.DataError, match=said):
    data.load("imagenet", prepared_imagenet, **options)


def test_a_directory_without_imagenet_names_the_command(tmp_path):
  for root, state in (
    (tmp_path, "has no"),
    (tmp_path / "no", "does not exist"),
  ):
    with pytest.raises(data.DataError) as caught:
      data.load("imagenet_subset", root)
    assert state in caught.value.problem
    assert "mnemonics_jax.data.prepare" in caught.value.fix
