"""How often exemplars are drawn, by hand."""

import numpy as np
import pytest

from mnemonics_jax.errors import UserError
from mnemonics_jax.phase import draws
from mnemonics_jax.settings import Phase

# Two old classes of two exemplars, a new one of ten images, one not seen yet.
LABELS = np.array([0, 0, 1, 1] + [2] * 10)


def quotas(how, labels=LABELS, old=2):
  return draws.quotas(how, labels, old, classes=4)


def test_once_is_no_quota_and_the_first_phase_has_none():
  assert quotas("once") is None
  assert quotas("balanced", old=0) is None


@pytest.mark.parametrize(
  ("how", "expected"),
  [
    # 14 draws for three classes: 4.67 of each; two have one more.
    ("balanced", [5, 5, 4, 0]),
    # 4·2, 4·2 and 10 are 26: 14/26 of that is 4.31, 4.31, 5.38.
    ("4", [4, 4, 6, 0]),
    ("1", [2, 2, 10, 0]),
    # 2000, 2000 and 10.
    ("1000", [7, 7, 0, 0]),
  ],
)
def test_an_epoch_has_as_many_draws_as_there_are_images(how, expected):
  assert quotas(how).tolist() == expected


def test_classes_of_a_memory_count_alike():
  labels = np.array([0] * 2 + [1] * 6 + [3] * 3)
  # 11 draws for three classes: 3.67 of each; two have one more.
  assert draws.equal_quotas(labels, classes=5).tolist() == [4, 4, 0, 3, 0]
  assert draws.equal_quotas(np.array([0, 0, 2, 2]), classes=4) is None


def test_new_classes_of_different_size_keep_their_sizes():
  labels = np.array([0] + [1] * 3 + [2] * 9)
  # Old: the mean of 3 and 9. 6, 3 and 9 are 18: 13/18 of that.
  found = quotas("balanced", labels, old=1)
  assert found.tolist() == [4, 2, 7, 0]  # 4.33, 2.17, 6.5


def test_a_class_of_which_nothing_is_kept_is_not_drawn():
  labels = np.array([1, 1] + [2] * 4)
  assert quotas("balanced", labels).tolist() == [0, 3, 3, 0]


@pytest.mark.parametrize("how", ["", "twice", "0", "-2", "1.5", "all", "1e3"])
def test_what_is_no_way_to_rehearse_is_refused(how):
  with pytest.raises(UserError, match="`rehearsal="):
    Phase.check_value("rehearsal", how)
