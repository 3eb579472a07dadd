"""Sections of a page: which there are, and what they tell."""

import pytest
from support import report_fixture

from mnemonics_jax.report import sections
from mnemonics_jax.runs.finished import load_run


def make(section, run):
  return section(run, run.path)


@pytest.fixture
def run(tmp_path):
  return load_run(report_fixture.write(tmp_path / "run"))


def test_numbers_need_no_figures(run):
  """None is drawn here: a section that has nothing else is left out."""
  made = {make(section, run) for section in sections.SECTIONS} - {None}
  titles = {section.title for section in made}
  assert {"Accuracy", "Seeds", "Repeat", "Memory", "Fine-tune"} <= titles
  assert not {"Confusions", "Training", "Kept and lost"} & titles


def test_what_coding_leaves_of_learning_is_told(run):
  assert make(sections.exemplars, run) is None
  losses = {"loss_before": 2.0, "loss_learned": 1.0, "loss_kept": 1.5}
  for seed in run.results["runs"]:
    seed["phases"][0]["diagnostics"] = {"exemplars": losses}
  body = make(sections.exemplars, run).body
  assert "as the codec keeps them" in body and "1.5000" in body


def test_one_seed_needs_no_table_of_seeds(tmp_path):
  run = load_run(report_fixture.write(tmp_path / "run", seeds=(0,)))
  assert make(sections.seeds, run) is None


def test_the_command_can_be_copied_and_settings_are_text(run):
  body = make(sections.repeat, run).body
  assert "python -m experiments.digits --method=lucir" in body
  assert "<dt>bad</dt><dd>&lt;b&gt;&amp;</dd>" in body
  assert "<b>" not in body


def test_names_of_classes_are_text(run):
  body = make(sections.memory, run).body
  assert report_fixture.SCRIPT_NAME not in body
  assert "&lt;script&gt;alert(1)&lt;/script&gt;" in body
