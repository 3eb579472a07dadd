"""Budgets: what they allow, how they are written, when they are refused."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from mnemonics_jax import memory
from mnemonics_jax.errors import UserError


@given(st.integers(1, 5000), st.integers(1, 300))
def test_a_total_budget_is_never_exceeded(budget, classes):
  allowance = memory.Total(budget).allowance(classes)
  assert allowance * classes <= budget
  assert (allowance + 1) * classes > budget


def test_memory_policies_are_read_from_text():
  assert memory.parse("per_class:20") == memory.PerClass(20)
  assert memory.parse("total:2000") == memory.Total(2000)
  assert str(memory.parse("total:7")) == "total:7"


@pytest.mark.parametrize(
  "text", ["", "20", "per_class", "per_class:", "total:x", "total:1.5",
           "per_class:0", "per_class:-3", "total:-1", "all:3"],
)  # fmt: skip
def test_broken_memory_policies_are_refused(text):
  with pytest.raises(UserError, match="`memory="):
    memory.parse(text)


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
