"""Values that cross rooms are trees, and need no JAX to be named."""

import subprocess
import sys

import jax
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import types


def test_states_are_trees_of_their_arrays():
  memory = memory_lib.empty(classes=2, image_shape=(4, 4, 3))
  state = types.PhaseState({"params": {}}, memory, jax.random.key(0), 1, 2)
  doubled = jax.tree.map(lambda leaf: leaf, state)
  assert isinstance(doubled, types.PhaseState)
  assert doubled.memory is memory  # It stays on the host, whole.
  assert len(jax.tree.leaves(state)) == 4  # Memory, key, two numbers.


def test_padding_is_optional():
  exemplars = types.Exemplars(np.zeros((2, 4, 4, 3)), np.zeros(2, int))
  assert exemplars.mask is None
  assert len(jax.tree.leaves(exemplars)) == 2


def test_readers_of_files_need_not_wait_for_jax():
  code = "import sys, mnemonics_jax.types; print('jax' in sys.modules)"
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True
  )
  assert done.stdout.strip() == "False", done.stderr
