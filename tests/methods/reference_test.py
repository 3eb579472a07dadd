"""Where the code of the published numbers differs, and where it does not."""

import dataclasses

import pytest

from mnemonics_jax import methods
from mnemonics_jax.methods import reference
from mnemonics_jax.nn.heads import CosineHead


def test_lucir_averages_its_margin_and_starts_with_one():
  ours = methods.LUCIR(less_forget_base=7.0)
  found = reference.method(ours)
  assert found.reduction == "mean" and found.head == CosineHead(sigma=1.0)
  same = dataclasses.replace(found, reduction=ours.reduction, head=ours.head)
  assert same == ours


@pytest.mark.parametrize("name", methods.METHODS)
def test_others_are_as_they_are(name):
  ours = methods.METHODS[name]()
  if name != "lucir":
    assert reference.method(ours) is ours
  assert reference.last_relu(ours) == (name not in ("lucir", "joint"))
