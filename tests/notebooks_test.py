"""Notebooks run from beginning to end, and are what their sources say."""

from pathlib import Path
import re
import shutil
import subprocess

import jupytext
import nbclient
import nbformat
import pytest
from support import compilations

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
# What the last cells print, and how many pictures there are.
CONCLUSIONS = {
  "cifar100_tpu": "Not comparable: other data, or a reduced schedule.",
  "inspect_run": "8 → 10 classes",
  "quickstart": "3840 bytes",
}
PICTURES = {"cifar100_tpu": 0, "inspect_run": 4, "quickstart": 3}


def cells(notebook):
  return [(cell.cell_type, cell.source) for cell in notebook.cells]


def test_the_notebooks_are_there():
  assert NAMES == ["cifar100_tpu", "inspect_run", "quickstart"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_equals_its_source(path):
  source = jupytext.read(path.with_suffix(".py"))
  stored = nbformat.read(path, as_version=4)
  nbformat.validate(stored)
  assert cells(stored) == cells(source), (
    f"run `jupytext --update --to ipynb {path.with_suffix('.py')}`"
  )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_is_stored_without_outputs(path):
  for cell in nbformat.read(path, as_version=4).cells:
    assert not cell.get("outputs") and not cell.get("execution_count")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_the_badge_opens_this_notebook(path):
  """Of the copy that its first cell installs; `make owner` says which."""
  first, *others = nbformat.read(path, as_version=4).cells
  place = rf"/([\w-]+)/mnemonics_jax/blob/main/notebooks/{path.name}\)"
  (owner,) = re.findall(place, first.source)
  source = f'source = "https://github.com/{owner}/mnemonics_jax"'
  assert any(source in cell.source for cell in others)


def test_whose_copy_it_is_stands_in_every_address(tmp_path):
  for part in ("notebooks", "docs", "Makefile", "README.md"):
    copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
    copy(ROOT / part, tmp_path / part)
  make = ["make", "-s", "owner"]
  done = subprocess.run(make, cwd=tmp_path, capture_output=True, text=True)
  assert done.returncode and "NAME=" in done.stderr
  subprocess.run([*make, "NAME=ada-l"], cwd=tmp_path, check=True)
  pages = tmp_path / "docs" / "install.md", tmp_path / "README.md"
  files = *tmp_path.glob("notebooks/*"), *pages
  for text in (file.read_text() for file in files if file.is_file()):
    assert "ada-l/mnemonics_jax" in text and "OWNER/" not in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_jax_is_imported_after_it_was_installed(path):
  sources = [cell.source for cell in nbformat.read(path, as_version=4).cells]
  code = [source for source in sources if "import" in source]
  installing = next(i for i, text in enumerate(code) if '"pip"' in text)
  importing = re.compile(r"^\s*(import|from) (jax|flax|mnemonics_jax)", re.M)
  assert not any(importing.search(text) for text in code[: installing + 1])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
  """With a smoke setting, where there is nothing but the project."""
  compilations.share_kernels(tmp_path / ".cache")
  monkeypatch.setenv("MNEMONICS_SMOKE", "1")
  monkeypatch.setenv("PYTHONPATH", str(ROOT))
  monkeypatch.setenv("HOME", str(tmp_path))
  monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
  notebook = nbformat.read(path, as_version=4)
  nbclient.NotebookClient(
    notebook,
    timeout=300,
    kernel_name="python3",
    resources={"metadata": {"path": str(tmp_path)}},
  ).execute()
  outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
  printed = "".join(out.get("text", "") for out in outputs)
  pictures = [out for out in outputs if "image/png" in out.get("data", {})]
  assert (CONCLUSIONS[path.stem] in printed, len(pictures)) == (
    True,
    PICTURES[path.stem],
  )
