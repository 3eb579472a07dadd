"""report.html: complete, escaped, and fine in a real browser."""

import html
import json
import re
import shutil
import subprocess
import sys

import pytest
from support import report_fixture

from mnemonics_jax import report


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
  root = tmp_path_factory.mktemp("pages")
  one = report_fixture.write(
    root / "<img src=x onerror=alert(2)>", learned=True
  )
  two = report_fixture.write(
    root / "two",
    exemplars="mnemonics",
    offset=0.04,
    finetune=False,
    learned=True,
  )
  return {
    "single": report.build([one]),
    "comparison": report.build([one, two], root / "out" / "both.html"),
  }


def test_default_places(pages):
  assert pages["single"].name == "report.html"
  assert pages["comparison"].name == "both.html"


def test_page_is_self_contained(pages):
  for path in pages.values():
    text = path.read_text(encoding="utf-8")
    sources = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", text)
    assert sources
    assert all(s.startswith(("data:", "#")) for s in sources)
    assert "<script" not in text
    assert "@import" not in text and "url(" not in text


def test_names_are_escaped(pages):
  for path in pages.values():
    text = path.read_text(encoding="utf-8")
    assert html.escape(report_fixture.SCRIPT_NAME) in text
    assert "<img src=x" not in text
    assert "&lt;img src=x" in text
    assert "<b>&" not in text


def test_page_tells_the_numbers(pages):
  text = pages["single"].read_text(encoding="utf-8")
  # Mean of 0.70 and 0.68 after the last phase; forgetting 0.12 and 0.10.
  assert "69.0\u00a0% of the test images of all 5 classes" in text
  assert "fell by 11.0 points" in text
  assert "3 at first, then 2 phases of 1 more" in text
  assert "4 images per class" in text
  assert "do not compare these numbers with published ones" in text
  assert "They differ in: epochs 3 (paper: 160), net tiny." in text
  assert "python -m experiments.digits --method=lucir" in text
  assert "0123abc" in text
  assert "Fine-tune</h2>" in text


def test_comparison_says_who_is_ahead(pages):
  text = pages["comparison"].read_text(encoding="utf-8")
  # Averages 0.79 and 0.83 with the same spread: paired difference 0.04 ± 0.
  assert "mnemonics has the highest average accuracy, 83.0\u00a0%" in text
  assert "4.0 points above herding" in text
  assert "lies above zero" in text
  assert "+4.00 ± 0.00" in text


def test_fine_tune_section_only_where_there_was_one(tmp_path):
  path = report_fixture.write(tmp_path / "run", finetune=False, seeds=(0,))
  text = report.build([path]).read_text(encoding="utf-8")
  assert "Fine-tune</h2>" not in text
  assert "There is one seed" in text


def damage_nothing(path):
  shutil.rmtree(path)


def damage_results(path):
  (path / "results.json").unlink()


def damage_all(path):
  (path / "results.json").unlink()
  (path / "metrics.jsonl").unlink()


def damage_json(path):
  (path / "results.json").write_text('{"title": ')


def damage_binary(path):
  (path / "results.json").write_bytes(b"\xff\xfe\x00")


def damage_shape(path):
  results = json.loads((path / "results.json").read_text())
  del results["runs"][0]["phases"][1]["by_group"]
  (path / "results.json").write_text(json.dumps(results))


def damage_summary(path):
  results = json.loads((path / "results.json").read_text())
  results["summary"]["head"]["per_phase"].pop()
  (path / "results.json").write_text(json.dumps(results))


@pytest.mark.parametrize(
  ("damage", "sentence"),
  [
    (damage_nothing, "There is no directory"),
    (damage_results, "is not finished"),
    (damage_all, "has no results.json"),
    (damage_json, "results.json is damaged"),
    (damage_binary, "results.json is damaged"),
    (damage_shape, r"runs\[0\].phases\[1\] lacks by_group"),
    (damage_summary, "summary.head.per_phase does not have 3 entries"),
  ],
)
def test_damage_gets_a_sentence(tmp_path, damage, sentence):
  path = report_fixture.write(tmp_path / "run", groups=(1, 1, 1), seeds=(0,))
  damage(path)
  with pytest.raises(report.WorkdirError, match=sentence) as caught:
    report.build([path])
  # What is wrong, and what to do about it.
  assert re.fullmatch(r".+; [a-z].+\.", str(caught.value))


def command(*arguments):
  return subprocess.run(
    [sys.executable, "-m", "experiments.report", *map(str, arguments)],
    capture_output=True,
    text=True,
    check=False,
  )


def test_command_refuses_with_one_sentence(tmp_path):
  done = command(tmp_path / "missing")
  assert done.returncode == 2
  (sentence,) = done.stderr.splitlines()
  assert sentence == (
    f"error: There is no directory {tmp_path / 'missing'}; name the work"
    " directory of a finished run."
  )


def test_command_needs_a_work_directory():
  done = command()
  assert done.returncode == 2
  (sentence,) = done.stderr.splitlines()
  assert "; name the work directory" in sentence


def test_command_writes_the_page(tmp_path):
  path = report_fixture.write(tmp_path / "run", groups=(1, 1), seeds=(0,))
  done = command(path, f"--output={tmp_path / 'page.html'}")
  assert done.returncode == 0, done.stderr
  assert done.stdout.strip().endswith("page.html")
  assert (tmp_path / "page.html").stat().st_size > 10_000


@pytest.fixture(scope="module")
def browser():
  names = ("chromium", "chromium-browser", "google-chrome")
  executable = next(filter(None, map(shutil.which, names)), None)
  if executable is None:
    pytest.skip("no browser installed: Chromium or Chrome is needed")
  playwright = pytest.importorskip("playwright.sync_api")
  arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
  with playwright.sync_playwright() as p:
    found = p.chromium.launch(executable_path=executable, args=arguments)
    yield found
    found.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["single", "comparison"])
def test_in_a_browser(browser, pages, name, width):
  page = browser.new_page(viewport={"width": width, "height": 800})
  trouble, requests = [], []
  page.on("console", lambda message: trouble.append(message.text))
  page.on("pageerror", lambda error: trouble.append(str(error)))
  page.on("dialog", lambda dialog: trouble.append(dialog.message))
  page.on("request", lambda request: requests.append(request.url))
  page.goto(pages[name].as_uri())
  for details in page.query_selector_all("details"):
    details.evaluate("d => { d.open = true; }")
  assert trouble == []
  assert all(url.startswith(("file:", "data:")) for url in requests)
  assert sum(url.startswith("file:") for url in requests) == 1
  broken = "[...document.images].filter(i => !i.naturalWidth).length"
  assert page.evaluate("document.images.length") >= 10
  assert page.evaluate(broken) == 0
  assert page.evaluate("document.documentElement.scrollWidth") <= width
  shown = page.inner_text("body")
  assert report_fixture.SCRIPT_NAME in shown
  assert page.evaluate("document.scripts.length") == 0
  page.close()
