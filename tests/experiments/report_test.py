"""`experiments.report`: where a page goes, and where none may go."""

import pytest
from support import command, report_fixture

from mnemonics_jax.report import page


@pytest.fixture
def home(tmp_path, monkeypatch):
  monkeypatch.setattr(page, "DRAWERS", ())  # They take seconds.
  report_fixture.write(tmp_path / "run", groups=(1, 1), seeds=(0,))
  return tmp_path


@pytest.mark.parametrize(
  "flags, page",
  [
    ([], "run/report.html"),
    (["--output=page.html"], "page.html"),
    (["--output=run"], "run/report.html"),
  ],
)
def test_the_page_is_where_it_was_asked_for(home, flags, page):
  done = command.call("report", "run", *flags, cwd=home)
  assert not done.code, done.err
  assert done.out.strip() == page and page in done.files


@pytest.mark.parametrize(
  "output, problem",
  [
    ("page.txt", "neither a directory nor a page"),
    ("nowhere", "neither a directory nor a page"),
    ("run/config.json/page.html", "is not a directory"),
  ],
)
def test_nothing_else_is_overwritten(home, output, problem):
  done = command.call("report", "run", f"--output={output}", cwd=home)
  command.assert_refused(done, "--output=", problem)


def test_a_run_that_is_none_is_told(home):
  command.assert_refused(
    command.call("report", "nothing", cwd=home), "There is no directory nothing"
  )
  command.assert_refused(
    command.call("report", cwd=home), "name the work directory"
  )
