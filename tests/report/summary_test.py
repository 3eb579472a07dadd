"""A run in plain words."""

import pytest
from support import report_fixture

from mnemonics_jax.report import story
from mnemonics_jax.runs.results import load_run


@pytest.fixture
def made(tmp_path):
  return lambda name="run", **options: load_run(
    report_fixture.write(tmp_path / name, **options)
  )


@pytest.mark.parametrize(
  "groups, words",
  [
    ((3, 1, 1), "3 at first, then 2 phases of 1 more."),
    ((3, 2), "3 at first, then one phase of 2 more."),
    ((3, 2, 1), "3 at first, then 2 phases of 1 to 2 more."),
    ((5,), "in a single phase."),
  ],
)
def test_phases_are_told_in_words(made, groups, words):
  text = story.describe(made(groups=groups, seeds=(0,)).results)
  assert f"{sum(groups)} classes of digits" in text and words in text


def test_data_have_the_names_people_know(made):
  results = made().results
  for name, title in (("cifar100", "CIFAR-100"), ("my pets", "my pets")):
    text = story.describe(results | {"dataset": name})
    assert f"classes of {title} apart" in text


def test_methods_have_the_names_people_know(made):
  text = story.describe(made(method="icarl", exemplars="random").results)
  assert "trained with iCaRL" in text and "random exemplars" in text
  bound = story.describe(made("joint", method="joint").results)
  assert "upper bound" in bound and "kept" not in bound


def test_what_numbers_can_be_used_for(made):
  results = made(seeds=(0,)).results
  assert story.caveat(results).startswith("There is one seed")
  assert "epochs 3 (paper: 160), net tiny" in story.caveat(results)
  paper = story.caveat(results | {"schedule": "paper", "seeds": [0, 1]})
  assert "means over 2 seeds" in paper
  assert paper.endswith("The settings are the paper's.")


def test_the_numbers_on_top(made):
  found = {name: value for name, value, _ in story.key_numbers(made())}
  assert found["Average accuracy"] == "79.0 %"
  assert found["After the last phase"] == "69.0 %"
  assert found["Forgetting"] == "11.0"
  assert found["Memory"] == "20"


def test_who_is_ahead_is_said_with_the_distance(made):
  runs = [made("a"), made("b", offset=0.03)]
  text = story.compare(["one", "other"], runs)
  assert text.startswith("other has the highest average accuracy, 82.0\u00a0%")
  assert ": 3.0 " in text and " points above one" in text
