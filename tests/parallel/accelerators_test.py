"""Every program of a run lowers for TPUs and GPUs, which no test here has."""

import pytest
from support import programs

from mnemonics_jax import registry

PLATFORMS = ("tpu", "cuda")


def _mostly_slow(names, *quick):
  """Parameters of which some run with the suite."""
  slow = pytest.mark.slow
  return [n if n in quick else pytest.param(n, marks=slow) for n in names]


def _assert_lowers(program):
  exported = programs.export(program, PLATFORMS)
  assert set(exported.platforms) == set(PLATFORMS)
  # Nothing of it is only to be had on this machine.
  assert "mnemonics" not in exported.mlir_module().replace("mnemonics_jax", "")


@pytest.mark.parametrize("method", _mostly_slow(registry.METHODS, "lucir"))
def test_a_training_step_of_every_method(unchecked, method):
  _assert_lowers(programs.training(method))


@pytest.mark.parametrize("kind", _mostly_slow(["in_out", "out"]))
def test_weight_transfer(unchecked, kind):
  _assert_lowers(programs.training(kind=kind))


@pytest.mark.slow
def test_half_precision(unchecked):
  _assert_lowers(programs.training(dtype="bfloat16"))


@pytest.mark.parametrize(
  "scope", _mostly_slow(["head", "transfer", "all"], "all")
)
def test_a_meta_step_of_every_scope(unchecked, scope):
  _assert_lowers(programs.meta(scope))


def test_evaluation(unchecked):
  _assert_lowers(programs.evaluation())
