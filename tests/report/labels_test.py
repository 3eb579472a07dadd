"""What runs are called beside each other."""

from pathlib import Path

from mnemonics_jax.report.group import common_title, labels
from mnemonics_jax.runs.results import Run


def run(title, path="runs/a", **settings):
  return Run(Path(path), {"settings": settings}, {"title": title})


def test_one_run_has_its_title():
  assert labels([run("digits · lwf · random")]) == ["digits · lwf · random"]


def test_the_parts_of_titles_that_differ_tell_runs_apart():
  runs = [run("digits · lwf · random"), run("digits · bic · random")]
  assert labels(runs) == ["lwf", "bic"]
  assert common_title(runs) == "digits · random"
  # Titles with other numbers of parts are not compared part by part.
  assert labels([run("a · b"), run("a")]) == ["a · b", "a"]


def test_settings_tell_apart_what_titles_do_not():
  runs = [
    run("t", epochs=3, adjust=True, method="x"),
    run("t", epochs=4, adjust=False, method="y"),
  ]
  # The method is part of titles: it is not said twice.
  assert labels(runs) == ["epochs 3 · adjust", "epochs 4 · no adjust"]


def test_the_directory_is_the_last_resort():
  runs = [run("t", "runs/one"), run("t", "runs/two")]
  assert labels(runs) == ["(one)", "(two)"]
