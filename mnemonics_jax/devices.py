"""Many devices: images and batches are split over them, all else is on each.

Programs are written as for one device. Under `use` JAX knows a mesh: arrays made
there live on every device of it, `spread` gives each its share of the images,
`split` marks the batches whose rows part ways, and XLA derives the rest, which is
sums over devices: of gradients, of batch statistics, and of a batch's images,
which are zero on all devices but the one that has them. Without a mesh all of
this is the identity.
"""

import contextlib
from typing import Any

import jax
from jax import lax
from jax.experimental import multihost_utils
import jax.numpy as jnp
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


def draw(array: jax.Array, rows: jax.Array) -> jax.Array:
  """A batch: `array[rows]`, split if it can be, of an array that may be spread.

  Left to itself, XLA would copy the whole array to every device.
  """
  if count() == 1 or len(array) % count():
    return split(array[rows])
  even = len(rows) % count() == 0

  def from_own(own, rows):
    at = rows - lax.axis_index(_AXIS) * len(own)
    here = ((at >= 0) & (at < len(own))).reshape(-1, *[1] * (own.ndim - 1))
    # Zeros on all devices but one: the sum is exact.
    found = jnp.where(here, own[jnp.clip(at, 0, len(own) - 1)], 0)
    if even:
      return lax.psum_scatter(found, _AXIS, tiled=True)
    return lax.psum(found, _AXIS)

  split_rows, all_rows = PartitionSpec(_AXIS), PartitionSpec()
  return jax.shard_map(
    from_own,
    in_specs=(split_rows, all_rows),
    out_specs=split_rows if even else all_rows,
  )(array, rows)


def _constrain(x, *axes):
  if count() == 1:
    return x
  return lax.with_sharding_constraint(x, PartitionSpec(*axes))


def put(array: np.ndarray | jax.Array) -> jax.Array:
  """Moves a host array to every device.

  Every process has the array; none waits to compare it with the others'.
  """
  if count() == 1 or isinstance(array, jax.Array):
    return jnp.asarray(array)
  return _place(array.shape, PartitionSpec(), lambda index: array[index])


def spread(array: np.ndarray, rows: int) -> jax.Array:
  """Moves a share of a host array to each device, zeros for rows it lacks.

  A process only looks at the rows of its own devices.
  """

  def share(index):
    start, stop, _ = index[0].indices(rows)
    own = array[start:stop]
    missing = stop - start - len(own)
    return np.pad(own, [(0, missing)] + [(0, 0)] * (array.ndim - 1))

  if count() == 1:
    return jnp.asarray(share((slice(rows),)))
  return _place((rows, *array.shape[1:]), PartitionSpec(_AXIS), share)


def _place(shape, spec, rows):
  sharding = NamedSharding(jax.sharding.get_mesh(), spec)
  return jax.make_array_from_callback(shape, sharding, rows)


def collect(array: np.ndarray) -> np.ndarray:
  """The arrays of all processes, along a new first axis."""
  if jax.process_count() == 1:
    return array[None]
  return multihost_utils.process_allgather(array)


def same(value: int) -> bool:
  """Whether all processes have this value."""
  return bool(np.ptp(collect(np.array(value, np.int32))) == 0)


def agree(value: int) -> int:
  """The largest value of all processes: clocks differ, but steps must not."""
  return int(collect(np.array(value, np.int32)).max())
