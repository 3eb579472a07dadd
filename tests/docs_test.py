"""The site builds without a warning, and needs nothing from elsewhere."""

import importlib.util
import json
import os
from pathlib import Path
import re
import subprocess
import sys

import nbformat
import pytest

ROOT = Path(__file__).parents[1]


def load(name):
  """A module of docs/, which is no package."""
  spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def build(directory, config=ROOT / "mkdocs.yml"):
  options = ("--strict", "--config-file", config, "--site-dir", directory)
  return subprocess.run(
    [sys.executable, "-m", "mkdocs", "build", *map(str, options)],
    cwd=ROOT,
    env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    capture_output=True,
    text=True,
  )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
  directory = tmp_path_factory.mktemp("site")
  done = build(directory)
  assert not done.returncode, done.stderr
  return directory


def test_every_page_of_the_guide_is_there(site):
  pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
  assert len(pages) > 12
  assert pages <= {path.stem for path in site.glob("*.html")}


def test_notebooks_and_public_names_are_shown(site):
  for path in (ROOT / "notebooks").glob("*.ipynb"):
    assert (site / f"notebooks/{path.stem}.html").exists()
  page = (site / "api/bilevel.html").read_text()
  assert 'id="mnemonics_jax.bilevel.optimize_exemplars"' in page
  assert "&gt;&gt;&gt;" in page


def test_pages_load_nothing_from_elsewhere(site):
  """Links may lead away; scripts, styles, fonts and pictures are here."""
  for path in site.rglob("*.html"):
    text = path.read_text()
    loaded = re.findall(r'<(?:script|img|iframe)[^>]*src="([^"]*)"', text)
    loaded += re.findall(r'<link[^>]*href="([^"]*)"', text)
    assert loaded
    away = [url for url in loaded if re.match(r"(https?:)?//", url)]
    assert not away, path


def test_a_broken_link_is_an_error(tmp_path):
  (tmp_path / "docs").mkdir()
  (tmp_path / "docs/index.md").write_text("[gone](gone.md#nowhere)")
  settings = (ROOT / "mkdocs.yml").read_text()
  validation = re.search(r"^validation:\n(?:  .*\n)+", settings, re.MULTILINE)
  config = tmp_path / "mkdocs.yml"
  config.write_text("site_name: broken\n" + validation[0])
  done = build(tmp_path / "site", config)
  assert done.returncode and "gone.md" in done.stderr


def test_notebooks_become_text_code_and_what_came_out(tmp_path):
  lines = [nbformat.v4.new_output("stream", text=f"{i}\n") for i in (2, 3)]
  picture = nbformat.v4.new_output(
    "display_data", data={"image/png": "iVBO\n", "text/plain": "<Figure>"}
  )
  cells = [
    nbformat.v4.new_markdown_cell("# Sum"),
    nbformat.v4.new_code_cell("print(1 + 1)", outputs=[*lines, picture]),
  ]
  path = tmp_path / "sum.ipynb"
  nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
  assert load("site").as_markdown(path).split("\n\n") == [
    "# Sum",
    "```python\nprint(1 + 1)\n```",
    "```text\n2\n3\n```",
    "![what the code above draws](data:image/png;base64,iVBO)",
  ]


def test_examples_are_fenced_and_nothing_else():
  text = "Adds.\n\n>>> f[x](1)\n2\n\nArgs:\n  x: one."
  fenced = "Adds.\n\n```pycon\n>>> f[x](1)\n2\n```\n\nArgs:\n  x: one."
  assert load("site").fenced(text) == fenced


def test_the_page_of_results_has_the_numbers_of_results():
  text = (ROOT / "docs/measured.md").read_text(encoding="utf-8")
  assert text.count("<!-- table") > 10
  assert load("results").written(text) == text
  row = re.search(
    r"\| JPEG 90 \|[^|]*\|[^|]*\|[^|]*\|[^|]*\| \*\*(.*?)\*\*", text
  )
  assert row and row[1] == "+1.77 ± 0.39"


def test_a_table_of_results_by_hand(tmp_path, monkeypatch):
  results = load("results")
  monkeypatch.setattr(results, "ROOT", tmp_path)
  accuracy = {"a": (0.5, 0.7), "b": (0.4, 0.5)}
  cells = {
    f"{row}/{seed}": {
      "row": row, "seed": seed, "phases": 5, "status": "finished",
      "average": {"final": {"head": accuracy[row][seed]}},
    }
    for row in "ab" for seed in (0, 1)
  }  # fmt: skip
  (tmp_path / "results").mkdir()
  (tmp_path / "results/x.json").write_text(json.dumps({"cells": cells}))
  # Half-widths by hand: 12.706 times half of the distance of two values.
  assert results.table("x", "head head-b", "a=row_a b").splitlines() == [
    "| | head | head − b |",
    "|---|---:|---:|",
    "| row a | 60.00 ± 127.06 | +15.00 ± 63.53 |",
    "| b | 45.00 ± 63.53 | |",
  ]
