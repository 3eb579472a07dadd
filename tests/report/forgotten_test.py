"""A run that has forgotten its first classes says so, and what helps."""

import json

import pytest
from support import report_fixture

from mnemonics_jax import report
from mnemonics_jax.report import figures
from mnemonics_jax.runs.finished import load_run


@pytest.fixture
def made(tmp_path):
  def make(*last, first=0.9, readout="head", settings=(), **options):
    """A run that ends with these accuracies on the base classes, by seed."""
    path = report_fixture.write(
      tmp_path / "run", seeds=range(len(last)), **options
    )
    results = json.loads((path / "results.json").read_text())
    results["readout"] = readout
    for run, accuracy in zip(results["runs"], last, strict=True):
      run["phases"][0]["by_group"][readout][0] = first
      run["phases"][-1]["by_group"][readout][0] = accuracy
    (path / "results.json").write_text(json.dumps(results))
    config = json.loads((path / "config.json").read_text())
    config["settings"] |= dict(settings)
    (path / "config.json").write_text(json.dumps(config))
    return load_run(path)

  return make


def test_less_than_a_third_of_what_was_known_is_told(made):
  assert report.warning(made(0.31)) == ""
  # The mean over the seeds counts.
  assert report.warning(made(0.05, 0.56)) == ""
  assert report.warning(made(0.2, 0.3)) == (
    "The first 3 classes are hardly recognised any more: by the network's own"
    " classifier 25.0 % of their test images, and 90.0 % right after they were"
    " learned. What helps: `finetune=head`, which ends each phase with equal"
    " parts of all classes; or `method=icarl`, which compares with the means of"
    " exemplars."
  )


def test_what_was_little_from_the_start_is_not_forgotten(made):
  assert report.warning(made(0.2, first=0.5)) == ""
  assert report.warning(made(0.008, first=0.34)) != ""


def test_only_what_is_not_done_yet_is_advised(made):
  tuned = report.warning(made(0.1, settings={"finetune": "head"}))
  assert "`finetune=head`" not in tuned and "`method=icarl`" in tuned
  means = report.warning(made(0.1, readout="nme", method="icarl"))
  assert "the nearest mean of exemplars 10.0 %" in means
  assert means.endswith("What helps: a larger `memory`.")


def test_where_nothing_is_to_be_forgotten_nothing_is_told(made):
  assert report.warning(made(0.1, method="joint")) == ""
  assert report.warning(made(0.1, groups=(5,))) == ""


def test_the_page_tells_it(made, monkeypatch):
  monkeypatch.setattr(figures, "DRAWERS", ())
  text = report.build([made(0.1).path]).read_text(encoding="utf-8")
  assert '<p class="warning">The first 3 classes are hardly recog' in text
  assert "<code>finetune=head</code>" in text
  text = report.build([made(0.8).path]).read_text(encoding="utf-8")
  assert "hardly recognised" not in text
