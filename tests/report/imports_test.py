"""Reports are about files: making one does not load JAX."""

import pkgutil
import subprocess
import sys

import pytest

from mnemonics_jax import report

MODULES = (
  "mnemonics_jax.report",
  *(f"mnemonics_jax.report.{m.name}" for m in pkgutil.iter_modules(report.__path__)),
  "mnemonics_jax.progress",
  "mnemonics_jax.runs.layout",
  "mnemonics_jax.runs.metrics_log",
  "mnemonics_jax.runs.phase_arrays",
  "mnemonics_jax.runs.results",
)  # fmt: skip


def loaded(code, *packages):
  """Which of the packages are loaded when the code has run."""
  code = (
    f"import sys; {code}; print(*[p for p in {packages} if p in sys.modules])"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  return done.stdout.split()


def test_no_module_loads_jax():
  assert len(MODULES) > 15
  code = f"import importlib; [importlib.import_module(m) for m in {MODULES}]"
  found = loaded(code, "jax", "jaxlib", "flax", "jinja2", "matplotlib")
  assert found == ["matplotlib"]


def test_the_package_and_the_console_do_not_load_matplotlib():
  code = (
    "from mnemonics_jax import report; report.Console, report.console_table"
  )
  assert loaded(code, "jax", "jinja2", "matplotlib", "PIL") == []


@pytest.mark.parametrize("name", report.__all__)
def test_every_public_name_is_there_and_documented(name):
  assert getattr(report, name).__doc__
  assert name in dir(report)


def test_other_names_are_not():
  with pytest.raises(AttributeError, match="nothing"):
    getattr(report, "nothing")  # noqa: B009
