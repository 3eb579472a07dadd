"""The site builds without a warning, and needs nothing from elsewhere."""

import importlib.util
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
  assert load("doctests").fenced(text) == fenced
