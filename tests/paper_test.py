"""What may be called the paper's schedule."""

import dataclasses

import pytest

from experiments import cifar
from experiments.paper import follows_paper, reductions
from experiments.settings import Settings

LETTER = Settings("cifar100", "paper", **cifar.PRESETS["paper"])


def test_the_preset_follows_the_letter():
  assert follows_paper(LETTER)
  assert follows_paper(dataclasses.replace(LETTER, exemplars="herding"))
  assert not follows_paper(dataclasses.replace(LETTER, dataset="digits"))


@pytest.mark.parametrize(
  "change",
  [
    dict(epochs=159),
    dict(net="resnet8"),
    dict(recipe="tuned"),
    dict(meta_epochs=1),
    dict(max_change=2),
    dict(finetune="head"),
    dict(transfer="out"),
    dict(dtype="bfloat16"),
    dict(exemplars="herding", adjust=True, recipe="tuned"),
  ],
)
def test_a_departure_from_it_is_told(change):
  assert not follows_paper(dataclasses.replace(LETTER, **change))


def test_a_table_also_tells_that_transfer_is_missing():
  assert reductions(LETTER) == ["transfer none (paper: in_out)"]
  assert not reductions(dataclasses.replace(LETTER, transfer="in_out"))
