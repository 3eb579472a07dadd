"""What all tests share, and the examples in docstrings with them."""

import atexit
import contextlib
import os
import pathlib
import shutil
import tempfile

# Tests compile much and compute little: leave the optimiser out. Slow tests
# compute much; `make test-slow` sets XLA_FLAGS itself, to nothing.
os.environ.setdefault(
  "XLA_FLAGS",
  "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
)
os.environ["JAX_PLATFORMS"] = "cpu"

# What one process has compiled or drawn from fonts, the others need not: workers and
# commands that tests start inherit this. Gone at the end, so that no session rests
# on another.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
  _shared = tempfile.mkdtemp(prefix="programs_")
  atexit.register(shutil.rmtree, _shared, ignore_errors=True)
  os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{_shared}/xla"
  os.environ["MPLCONFIGDIR"] = f"{_shared}/matplotlib"
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import jaxtyping
import pytest
import support

# Annotations run: shapes and types of every call are checked.
jaxtyping.install_import_hook(
  ["mnemonics_jax", "experiments"], f"{support.__name__}.check"
)

# Files that take longest, of tests that are not slow.
_LONG = (
  "version",
  "parallel/mesh",
  "contracts/toys",
  "notebooks",
  "readme",
  "runs/resume",
  "phase/run",
  "runs/kill",
  "phase/train",
  "bilevel/hypergradient",
  "exemplars/learn",
  "contracts/strategies",
  "phase/sgd",
  "phase/config",
)
_TESTS = pathlib.Path(__file__).parent / "tests"
_RANKS = {_TESTS / f"{name}_test.py": i for i, name in enumerate(_LONG)}


def pytest_collection_modifyitems(items):
  """Long files first: workers then end at about the same time."""
  items.sort(key=lambda item: _RANKS.get(item.path, len(_LONG)))


@pytest.fixture(autouse=True)
def _workdir_of_examples(request, tmp_path_factory, monkeypatch):
  """Examples in docstrings begin where only a run and perhaps a learner are."""
  if isinstance(request.node, pytest.DoctestItem):
    from support import report_fixture

    directory = tmp_path_factory.mktemp("example")
    monkeypatch.chdir(directory)
    report_fixture.write(directory / "finished_run")
    examples = request.node.dtest.examples
    if any("saved_learner" in example.source for example in examples):
      from support import saved_learner

      saved_learner.write(directory / "saved_learner")


@pytest.fixture(autouse=True, scope="session")
def _kernels():
  """Builds them, or finds that it cannot, and lets no run of a test tell it."""
  from mnemonics_jax import cpu_conv
  from mnemonics_jax.errors import UserError

  with contextlib.suppress(UserError):
    cpu_conv.news()


@pytest.fixture
def unchecked():
  """Without the types that tests check: as users run it.

  For what annotations forbid, to see what users are told; and to lower programs,
  for JAX then builds trees whose leaves are descriptions of arrays.
  """
  jaxtyping.config.update("jaxtyping_disable", True)
  yield
  jaxtyping.config.update("jaxtyping_disable", False)
