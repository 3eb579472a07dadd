"""Budgets: what they allow, how they are written, when they are refused."""

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mnemonics_jax import memory
from mnemonics_jax.errors import UserError

KINDS = {
  "per_class": memory.PerClass,
  "total": memory.Total,
  "per_class_bytes": memory.PerClassBytes,
  "total_bytes": memory.TotalBytes,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@given(st.integers(1, 5000), st.integers(1, 300))
def test_a_total_budget_is_never_exceeded(budget, classes):
  images = memory.Total(budget).allowance(classes)
  assert images * classes <= budget < (images + 1) * classes
  policy = memory.TotalBytes(budget, images=1)
  each = policy.bytes_allowance(classes, shared=20)
  assert classes * each <= max(budget - 20, 0) < classes * (each + 1)
  assert policy.bytes_allowance(classes) == budget // classes


@every_kind
def test_budgets_are_read_from_text(kind):
  policy = KINDS[kind](20)
  assert memory.parse(f"{kind}:20") == policy and str(policy) == f"{kind}:20"
  assert memory.parse(policy) is policy and hash(policy) == hash(
    KINDS[kind](20)
  )
  for budget in ("", "x", "1.5", "0", "-3"):
    with pytest.raises(UserError, match=f"`memory={kind}:{budget}`"):
      memory.parse(f"{kind}:{budget}")


@pytest.mark.parametrize("text", ["", "20", "per_class", "all:3", "bytes:5"])
def test_other_texts_are_refused(text):
  with pytest.raises(UserError, match=r"not a memory policy.*total_bytes:N"):
    memory.parse(text)


@every_kind
@pytest.mark.parametrize("budget", [0, -1, 2.5, "3"])
def test_budgets_are_whole(unchecked, kind, budget):
  with pytest.raises(
    UserError, match=f"use {kind}:1 or a larger whole"
  ) as refused:
    KINDS[kind](budget)
  assert refused.value.field == "memory"


def test_budgets_that_cannot_be_met_are_refused():
  with pytest.raises(UserError, match="at least total:10"):
    memory.check(memory.Total(9), (5, 5), 100)
  with pytest.raises(UserError, match="per_class:12 or less"):
    memory.check(memory.PerClass(13), (5, 5), 12)
  memory.check(memory.PerClass(12), (5, 5), 12)


def test_slots():
  assert memory.slots(memory.PerClass(20), (50, 10), 500) == 20
  assert memory.slots(memory.Total(2000), (50, 10), 500) == 40
  assert memory.slots(memory.Total(2000), (2, 2), 500) == 500


def test_kept_is_never_more_than_the_budget_or_the_images():
  assert memory.kept(memory.Total(100), 0, 500) == 0
  assert memory.kept(memory.Total(100), 30, 500) == 90
  assert memory.kept(memory.Total(100), 2, 7) == 14
  assert memory.kept(memory.PerClass(5), 4, 500) == 20


class Fixed(memory.Jpeg):
  """A codec whose codes take as many bytes as the first pixel says."""

  def encode(self, images):
    sizes = images[:, 0, 0, 0].astype(np.int64)
    return memory.Codes(np.zeros(sizes.sum(), np.uint8), sizes)


def test_bytes_are_as_many_images_as_fit_and_half_as_many_more():
  images = np.zeros((4, 8, 8, 3), np.uint8)
  images[:, 0, 0, 0] = 10, 20, 30, 40  # 25 bytes on average.
  fit = lambda policy, codec=Fixed(): memory.fit(policy, codec, images)
  assert fit(memory.PerClassBytes(1000)).allowance(9) == 60  # 1.5 · 1000 / 25
  total = fit(memory.TotalBytes(1000))
  assert [total.allowance(n) for n in (1, 7)] == [60, 8]
  assert [total.bytes_allowance(n) for n in (1, 7)] == [1000, 142]
  assert memory.certain(total, 7) == 3  # Of the largest, which has 40.
  assert total.bytes_allowance(7, shared=300) == 100
  # Of images that are kept as they are, the number is known.
  raw = fit(memory.PerClassBytes(1000), memory.Raw())
  assert raw == memory.PerClassBytes(1000, images=5, size=192)
  assert fit(raw) == raw and fit(memory.Total(3)) == memory.Total(3)
  assert memory.Total(3).bytes_allowance(2) is None
  assert memory.PerClass(3).bytes_allowance(2) is None


def test_bytes_that_hold_nothing_are_refused():
  images = np.full((4, 8, 8, 3), 100, np.uint8)
  with pytest.raises(UserError, match="one image, which takes about 100 bytes"):
    memory.fit(memory.PerClassBytes(99), Fixed(), images)
  few = memory.fit(memory.TotalBytes(500), Fixed(), images)
  with pytest.raises(UserError, match="an image of each of 10 classes"):
    memory.check(few, (5, 5), smallest_class=100)
  memory.check(few, (2, 2), smallest_class=1)  # Of a small class all are kept.
  with pytest.raises(UserError, match=r"memory\.fit"):
    memory.PerClassBytes(99).allowance(3)


def test_bytes_that_will_not_hold_an_image_of_each_class_are_refused():
  """Although shapes have room for half as many images more."""
  policy = memory.TotalBytes(3900, images=14, size=400)
  assert policy.allowance(10) == 1
  memory.check(policy, (5, 4), smallest_class=9)  # 433 bytes of each.
  with pytest.raises(UserError, match="of each of 10 classes"):
    memory.check(policy, (5, 5), smallest_class=9)  # 390 of each.
  memory.check(policy, (5, 5), smallest_class=None)  # A learner will see.
  with pytest.raises(UserError, match="of each of 9 classes"):
    memory.check(policy, (5, 4), smallest_class=9, shared=310)  # 398 of each.
