"""What may be called the paper's schedule."""

import dataclasses

import pytest

from experiments import cifar, folder
from experiments.paper import follows_paper, reductions
from experiments.settings import Settings

PAPER = Settings("cifar100", "paper", **cifar.PRESETS["paper"])


def test_the_presets_follow_the_paper():
  assert follows_paper(PAPER)
  assert follows_paper(dataclasses.replace(PAPER, exemplars="herding"))
  assert follows_paper(Settings("folder", "paper", **folder.PRESETS["paper"]))
  assert not follows_paper(dataclasses.replace(PAPER, dataset="digits"))


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
    dict(less_forget=4.0),
    dict(reference_code=False),
    dict(validate_on="all"),
    dict(adjust=True, adjust_parts=3),
    dict(exemplars="herding", adjust=True, recipe="tuned"),
  ],
)
def test_a_departure_from_it_is_told(change):
  assert not follows_paper(dataclasses.replace(PAPER, **change))


@pytest.mark.parametrize(
  "change",
  [
    dict(exemplars="herding", recipe="tuned", init_exemplars="herding"),
    dict(method="lwf", less_forget=4.0),
    dict(distill=False, less_forget=4.0),
  ],
)
def test_what_has_no_effect_is_no_departure(change):
  assert follows_paper(dataclasses.replace(PAPER, **change))


def test_differences_are_told_in_words():
  short = dataclasses.replace(PAPER, epochs=10, max_change=2, transfer="in_out")
  assert reductions(short) == ["epochs 10 (paper: 160)", "max_change 2"]


def test_a_table_also_tells_that_transfer_is_missing():
  assert reductions(PAPER) == ["transfer none (paper: in_out)"]
  assert not reductions(dataclasses.replace(PAPER, transfer="in_out"))
