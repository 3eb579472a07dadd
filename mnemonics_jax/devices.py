"""Many devices: batches are split over them, all else is the same on each.

Programs are written as for one device. Under `use` JAX knows a mesh: arrays made
there live on every device of it, `split` marks the batches whose rows part ways,
and XLA derives the rest, which is sums over devices of gradients and batch
statistics. Without a mesh all of this is the identity.
"""

import contextlib
from typing import Any

import jax
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec
import numpy as np

from mnemonics_jax.types import PyTree

_AXIS = "data"


def use(count: int | None = None) -> contextlib.AbstractContextManager[Any]:
  """Computes on the first `count` devices from here on; None is all of them."""
  devices = jax.devices()[:count]
  if len(devices) == 1:
    return contextlib.nullcontext()
  return jax.set_mesh(
    jax.make_mesh(
      (len(devices),), (_AXIS,), axis_types=(AxisType.Auto,), devices=devices
    )
  )


def count() -> int:
  """Over how many devices XLA splits a batch here."""
  mesh = jax.sharding.get_abstract_mesh()
  return mesh.shape[_AXIS] if _AXIS in mesh.auto_axes else 1


def divisible(rows: int, parts: int = 1) -> int:
  """The next number of rows, upwards, of which each device has equal `parts`.

  One device takes any number: there is nothing to share.
  """
  share = parts * count()
  return rows if count() == 1 else -(-rows // share) * share


def split(tree: PyTree) -> PyTree:
  """Rows spread over the devices, if they make equal shares."""

  def spread(x):
    even = x.shape[0] % count() == 0
    return _constrain(x, _AXIS) if even else x

  return jax.tree.map(spread, tree)


def gather(tree: PyTree) -> PyTree:
  """The whole of every array on each device."""
  return jax.tree.map(_constrain, tree)


def _constrain(x, *axes):
  if count() == 1:
    return x
  return lax.with_sharding_constraint(x, PartitionSpec(*axes))


def put(array: np.ndarray | jax.Array, rows: bool = False) -> jax.Array:
  """Moves a host array to every device, or `rows` of it to each.

  Every process has the array; none waits to compare it with the others'.
  """
  if count() == 1 or isinstance(array, jax.Array):
    return jax.numpy.asarray(array)
  spec = PartitionSpec(_AXIS) if rows else PartitionSpec()
  mesh = jax.sharding.get_mesh()
  return jax.make_array_from_callback(
    array.shape, NamedSharding(mesh, spec), lambda index: array[index]
  )


def same(value: int) -> bool:
  """Whether all processes have this value."""
  if jax.process_count() == 1:
    return True
  return bool(np.ptp(multihost_utils.process_allgather(np.int32(value))) == 0)


def agree(value: int) -> int:
  """The largest value of all processes: clocks differ, but steps must not."""
  if jax.process_count() == 1:
    return value
  return int(multihost_utils.process_allgather(np.int32(value)).max())
