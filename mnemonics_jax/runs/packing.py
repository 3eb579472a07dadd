"""States as plain arrays that a checkpoint can hold, and back."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.parallel import mesh
from mnemonics_jax.types import PhaseState


def _is_key(leaf):
  return isinstance(leaf, jax.Array) and jnp.issubdtype(
    leaf.dtype, jax.dtypes.prng_key
  )


def to_host(leaves):
  """Arrays of a tree as they are stored."""
  return [
    np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    for leaf in leaves
  ]


def like_leaf(stored, leaf):
  """What was stored of a leaf, as that kind of leaf."""
  if _is_key(leaf):
    return jax.random.wrap_key_data(jnp.asarray(stored))
  if isinstance(leaf, jax.Array):
    return mesh.put_replicated(stored)
  return stored if isinstance(leaf, np.ndarray) else type(leaf)(stored)


def pack_memory(memory):
  """Images if they are kept as they are, as ever; or codes."""
  kept = {"images": memory.images}
  if not memory.codec.exact:
    kept = {"codes": memory.codes.data, "sizes": memory.codes.sizes}
  return kept | {"counts": memory.counts}


def pack_state(state):
  return {
    "variables": state.variables,
    "memory": pack_memory(state.memory),
    "key": jax.random.key_data(state.key),
  }


def _unpack_memory(empty, kept):
  if empty.codec.exact:
    codes = empty.codec.encode(kept["images"])
  else:
    codes = memory_lib.Codes(kept["codes"], kept["sizes"])
  return dataclasses.replace(empty, codes=codes, counts=kept["counts"])


def on_disk(state, large):
  """The state with a memory that is where its checkpoint is, if it is large.

  Args:
    state: what was saved.
    large: arrays of the checkpoint, see `checkpoint.large`.
  """
  packed = pack_memory(state.memory)
  found = {name: large.get(f"memory.{name}", x) for name, x in packed.items()}
  return state._replace(memory=_unpack_memory(state.memory, found))


def unpack_state(empty, tree, info):
  """The state whose arrays these are, with the codec of an empty memory."""
  return PhaseState(
    variables=jax.tree.map(mesh.put_replicated, tree["variables"]),
    memory=_unpack_memory(empty, tree["memory"]),
    key=jax.random.wrap_key_data(jnp.asarray(tree["key"])),
    phase=info["phase"],
    classes_seen=info["classes_seen"],
  )
