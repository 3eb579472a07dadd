"""report.html: complete, escaped, and fine in a real browser."""

import base64
import html
import io
import json
import re
import shutil
import subprocess
import sys
from urllib.parse import unquote

import numpy as np
from PIL import Image
import pytest
from support import report_fixture

from mnemonics_jax import report
from mnemonics_jax.report import figures


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
    sources = re.findall(r"""src\s*=\s*["']([^"']*)""", text)
    assert sources
    assert all(s.startswith("data:") for s in sources)
    assert "<script" not in text
    assert "@import" not in text and "url(" not in text


def test_links_lead_to_files(pages):
  for name, path in pages.items():
    text = path.read_text(encoding="utf-8")
    links = [unquote(link) for link in re.findall('<a href="(.*?)"', text)]
    inner = [link for link in links if link.startswith("#")]
    assert all(f"id={link[1:]}>" in text for link in inner)
    files = [link for link in links if not link.startswith("#")]
    assert all((path.parent / file).is_file() for file in files)
    # Every picture of numbers has them beside it.
    numbers = [file for file in files if file.endswith(".csv")]
    assert len(numbers) >= text.count('class="scroll frame"') > 3
    singles = [file for file in files if file.endswith("/report.html")]
    assert len(set(singles)) == (2 if name == "comparison" else 0)


def test_pictures_are_described_by_what_they_show(pages):
  for path in pages.values():
    text = path.read_text(encoding="utf-8")
    described = re.findall('<img [^>]*height="[0-9]*" alt="([^"]*)"', text)
    assert len(described) == text.count("<img ")
    assert all(re.search("[a-z]{2} .*[a-z0-9%]", words) for words in described)
  single = pages["single"].read_text("utf-8")
  described = " ".join(re.findall('alt="([^"]*)"', single))
  fall = "From 3 to 5 classes, head falls from 89.0\u00a0% to 69.0\u00a0%"
  assert fall in described
  # 2 grey levels of one colour in a quarter of each image.
  assert "class 3, changed by 0.17 grey levels on average" in described


def test_names_are_escaped(pages):
  for path in pages.values():
    text = path.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<img src=x" not in text
    assert "<b>&" not in text
  single, compared = (
    path.read_text(encoding="utf-8") for path in pages.values()
  )
  assert html.escape(report_fixture.SCRIPT_NAME) in single
  assert "&lt;img src=x" in single
  assert "/%3Cimg%20src%3Dx%20onerror%3Dalert%282%29%3E/report.html" in compared


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
  assert "4.0 ± 0.0 points above herding, seed by seed" in text
  assert "+4.00 ± 0.00" in text


def test_pages_of_a_hundred_classes_stay_light(tmp_path, monkeypatch):
  monkeypatch.setattr(figures, "DRAWERS", ())
  path = report_fixture.write(
    tmp_path / "run", groups=(50, *[10] * 5), seeds=(0,), slots=20, learned=True
  )
  # As hard to compress as photographs: slopes with noise.
  random = np.random.default_rng(0)
  slope = np.linspace(40, 200, 32, dtype=int)[:, None, None]

  def pictures(*shape):
    noise = random.integers(-20, 21, (*shape, 32, 32, 3))
    return (slope + noise).astype(np.uint8)

  for phase in range(6):
    file = path / "seed_0" / f"phase_{phase:02d}.npz"
    with np.load(file) as saved:
      arrays = dict(saved)
    for stage in ("exemplars", "adjust") if phase else ("exemplars",):
      before = pictures(20)
      change = random.integers(-2, 3, before.shape).astype(np.uint8)
      arrays[f"changed/{stage}/labels"] = np.repeat(np.arange(10), 2)
      arrays[f"changed/{stage}/before"] = before
      arrays[f"changed/{stage}/after"] = before + change
    if phase == 5:
      arrays["memory/images"] = pictures(100, 20)
    np.savez(file, **arrays)
  text = report.build([path]).read_text(encoding="utf-8")
  # 3 MB, of which plots take half a megabyte.
  assert 1e6 < len(text) < 2.5e6
  assert "The first 4 of up to 20 per class are shown." in text
  # What is shown is shown to the pixel.
  data = re.findall('class="pixels" src="data:image/png;base64,(.*?)"', text)
  with Image.open(io.BytesIO(base64.b64decode(data[-100]))) as picture:
    first = np.asarray(picture)[:, :32, :3]
  np.testing.assert_array_equal(first, arrays["memory/images"][0, 0])


def test_comparisons_do_not_repeat_the_pages_of_runs(pages):
  single, compared = (
    path.read_text(encoding="utf-8") for path in pages.values()
  )
  assert "Memory</h2>" in single and 'class="pixels"' in single
  assert "Memory</h2>" not in compared and 'class="pixels"' not in compared


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
  assert page.evaluate("document.images.length") >= 3
  assert page.evaluate(broken) == 0
  assert page.evaluate("document.documentElement.scrollWidth") <= width
  # What is wider than the window scrolls, and an arrow says so until the end.
  arrows = """[...document.querySelectorAll(".scroll")].map(e => [
    e.scrollWidth > e.clientWidth,
    Number(getComputedStyle(e, "::after").opacity)])"""
  found = page.evaluate(arrows)
  assert all(opacity == wide for wide, opacity in found)
  assert any(wide for wide, _ in found) == (width == 390)
  page.evaluate(
    "document.querySelectorAll('.scroll').forEach(e => e.scrollLeft = 9999)"
  )
  page.wait_for_timeout(100)
  assert all(opacity == 0 for _, opacity in page.evaluate(arrows))
  shown = page.inner_text("body")
  assert (report_fixture.SCRIPT_NAME in shown) == (name == "single")
  assert page.evaluate("document.scripts.length") == 0
  page.close()
