"""Many devices: images and batches are sharded, everything else is replicated.

Programs are written as for one device. Under `use`, JAX knows a mesh. Arrays made
there are replicated. `put_sharded` gives each device its rows of the images, and
`shard` marks the batches to split. XLA derives the rest: sums over devices of
gradients, batch statistics and images. Without a mesh, all of this does nothing.
"""

from collections.abc import Callable
import contextlib
import functools
import math
import mmap
import os
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
import numpy as np

from mnemonics_jax.types import PyTree

_AXIS = "data"


def use(count: int | None = None) -> contextlib.AbstractContextManager[Any]:
  """Computes on the first `count` devices; None means all of them."""
  devices = jax.devices()[:count]
  if len(devices) == 1:
    return contextlib.nullcontext()
  return jax.set_mesh(
    jax.make_mesh(
      (len(devices),), (_AXIS,), axis_types=(AxisType.Auto,), devices=devices
    )
  )


def here() -> Callable[[], contextlib.AbstractContextManager[Any]]:
  """A context in which another thread computes on the devices of this one.

  Each thread has its own mesh. Without the context, the arrays that another thread
  makes would be on one device.
  """
  if device_count() == 1:
    return contextlib.nullcontext
  return functools.partial(jax.set_mesh, jax.sharding.get_mesh())


def split_cpu(count: int | None = None) -> None:
  """Splits a CPU into `count` devices, at most one for each core; None means all.

  It has no effect after JAX has started, or if the environment sets the number.
  """
  chosen = "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
  asked: int = getattr(jax.config, "jax_num_cpu_devices")  # noqa: B009
  if chosen or asked >= 0:
    return
  with contextlib.suppress(RuntimeError):  # JAX has started.
    jax.config.update("jax_num_cpu_devices", min(count or cores(), cores()))


def cores() -> int:
  """Number of cores that this process may use."""
  affinity = getattr(os, "sched_getaffinity", None)  # Only on Linux.
  return len(affinity(0)) if affinity else os.cpu_count() or 1


def device_count() -> int:
  """Number of devices over which XLA shards a batch here."""
  mesh = jax.sharding.get_abstract_mesh()
  return mesh.shape[_AXIS] if _AXIS in mesh.auto_axes else 1


def round_up(rows: int, parts: int = 1) -> int:
  """Rows rounded up so that each device gets `parts` equal parts of them.

  On one device the number stays as it is.
  """
  share = parts * device_count()
  return rows if device_count() == 1 else -(-rows // share) * share


def shard(tree: PyTree) -> PyTree:
  """Shards rows over the devices, if all shares are equal."""

  def by_rows(x):
    even = x.shape[0] % device_count() == 0
    return _constrain(x, _AXIS) if even else x

  return jax.tree.map(by_rows, tree)


def replicate(tree: PyTree) -> PyTree:
  """Puts the whole of every array on each device."""
  return jax.tree.map(_constrain, tree)


def take(array: jax.Array, rows: jax.Array) -> jax.Array:
  """The batch `array[rows]`, sharded if its rows make equal shares.

  Without this, XLA would gather a whole sharded array on each device.
  """
  if device_count() == 1 or len(array) % device_count():
    return shard(array[rows])
  even = len(rows) % device_count() == 0

  def from_shard(held, rows):
    at = rows - lax.axis_index(_AXIS) * len(held)
    here = ((at >= 0) & (at < len(held))).reshape(-1, *[1] * (held.ndim - 1))
    # Zeros on all devices but one: the sum is exact.
    found = jnp.where(here, held[jnp.clip(at, 0, len(held) - 1)], 0)
    if even:
      return lax.psum_scatter(found, _AXIS, tiled=True)
    return lax.psum(found, _AXIS)

  by_rows, replicated = PartitionSpec(_AXIS), PartitionSpec()
  return jax.shard_map(
    from_shard,
    in_specs=(by_rows, replicated),
    out_specs=by_rows if even else replicated,
  )(array, rows)


def map_shares(
  function: Callable[[jax.Array, jax.Array], jax.Array],
  rows: jax.Array,
  whole: jax.Array,
) -> jax.Array:
  """`function(rows, whole)`, where each device computes the rows of its share.

  For calls that XLA cannot split by itself.
  """
  return _on_shares(function, (rows, whole), (_AXIS, None), _AXIS)


def sum_shares(
  function: Callable[[jax.Array, jax.Array], jax.Array],
  rows: jax.Array,
  others: jax.Array,
) -> jax.Array:
  """`function(rows, others)`, a sum over rows; each device adds its share.

  For calls that XLA cannot split by itself.
  """
  total = lambda *shares: lax.psum(function(*shares), _AXIS)
  if not _shareable(rows):
    return function(rows, others)
  return _on_shares(total, (rows, others), (_AXIS, _AXIS), None)


def _shareable(rows):
  return device_count() > 1 and len(rows) % device_count() == 0


def _on_shares(function, arrays, axes, result):
  if not _shareable(arrays[0]):
    return function(*arrays)
  # JAX cannot see whether the result of a call is equal on all devices.
  return jax.shard_map(
    function,
    in_specs=tuple(map(PartitionSpec, axes)),
    out_specs=PartitionSpec(result),
    check_vma=False,
  )(*arrays)


def _constrain(x, *axes):
  if device_count() == 1:
    return x
  return lax.with_sharding_constraint(x, PartitionSpec(*axes))


def put_replicated(array: np.ndarray | jax.Array) -> jax.Array:
  """Moves a host array to every device, without comparing it across processes."""
  if device_count() == 1 or isinstance(array, jax.Array):
    return jnp.asarray(array)
  return _place(array.shape, PartitionSpec(), lambda index: array[index])


# Images read at a time, so that those of a disk are not in memory twice.
_READ = 512


def put_sharded(array: Any, rows: int) -> jax.Array:
  """Moves to each device its rows of a host array, padded with zeros.

  A process only reads the rows of its own devices.

  Args:
    array: rows on the host, or images that are read when sliced, such as
      `data.images.Stored`.
    rows: their number with padding.
  """

  def own_rows(index):
    start, stop, _ = index[0].indices(rows)
    held = array[start:stop]
    own = np.zeros((stop - start, *array.shape[1:]), array.dtype)
    for first in range(0, len(held), _READ):
      own[first : first + _READ][: len(held) - first] = np.asarray(
        held[first : first + _READ]
      )
    return own

  if device_count() == 1:
    return jnp.asarray(own_rows((slice(rows),)))
  return _place((rows, *array.shape[1:]), PartitionSpec(_AXIS), own_rows)


def put_batches(
  read: Callable[[np.ndarray], np.ndarray],
  rows: np.ndarray,
  image_shape: tuple[int, ...],
) -> jax.Array:
  """Moves batches of images to the devices; each device gets a share of each.

  A process only reads the rows of its own devices.

  Args:
    read: returns the uint8 images of some rows.
    rows: rows of each batch, [batches, rows]; -1 stands for a black image.
    image_shape: of an image.
  """

  def own_batches(index):
    asked = rows[index[:2]]
    own = _outside_the_heap((*asked.shape, *image_shape))
    flat, wanted = own.reshape(-1, *image_shape), np.flatnonzero(asked >= 0)
    for first in range(0, len(wanted), _READ):
      some = wanted[first : first + _READ]
      flat[some] = read(asked.ravel()[some])
    return own

  if device_count() == 1:
    return jax.device_put(own_batches((slice(None), slice(None))))
  even = rows.shape[1] % device_count() == 0
  spec = PartitionSpec(None, _AXIS if even else None)
  return _place((*rows.shape, *image_shape), spec, own_batches)


def _outside_the_heap(shape: tuple[int, ...]) -> np.ndarray:
  """Zeros whose memory goes back to the system as soon as they are freed.

  Large arrays that come and go would fragment the heap. These begin at a page, so
  a CPU device uses them without a copy.
  """
  memory = mmap.mmap(-1, math.prod(shape))
  return np.frombuffer(memory, np.uint8).reshape(shape)


def take_batches(array: jax.Array, rows: jax.Array) -> jax.Array:
  """`take` for several batches, placed like those of `put_batches`."""
  batches = lax.map(lambda batch: take(array, batch), rows)
  even = rows.shape[1] % device_count() == 0
  return _constrain(batches, None, _AXIS if even else None)


def _place(shape, spec, read):
  sharding = NamedSharding(jax.sharding.get_mesh(), spec)
  return jax.make_array_from_callback(shape, sharding, read)
