"""Many images through a network, a block at a time: memory stays bounded."""

from collections.abc import Callable, Iterable
import contextlib

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array
import numpy as np

from mnemonics_jax.data.images import Images
from mnemonics_jax.parallel import mesh
from mnemonics_jax.parallel.ahead import read_ahead

# One size for every set of images on the host: one compiled program for all.
_BLOCK = 256


def map_blocks(apply: Callable[[Array], Array], images: Array) -> Array:
  """`apply(images)` within a compiled program, for images on the device.

  >>> images = jnp.arange(600.0).reshape(300, 2)  # Two blocks.
  >>> float(map_blocks(lambda block: block.sum(-1), images)[299])
  1197.0

  Args:
    apply: rows to rows; sees a block at a time, the last one padded.
    images: rows on the device.
  """
  size = mesh.round_up(min(_BLOCK, len(images)))
  padding = [(0, -len(images) % size)] + [(0, 0)] * (images.ndim - 1)
  padded = jnp.pad(mesh.replicate(images), padding)
  blocks = padded.reshape(-1, size, *images.shape[1:])
  out = lax.map(lambda block: apply(mesh.shard(block)), blocks)
  return mesh.replicate(out.reshape(-1, *out.shape[2:])[: len(images)])


def stream_blocks(
  apply: Callable[[Array], Iterable[Array]], rows: Images
) -> list[np.ndarray]:
  """`apply(rows)`, a tuple of arrays, for rows on the host; returns there.

  Their number differs from phase to phase, the program does not. The next block
  is read while one is computed.

  >>> rows = np.ones((300, 2), np.float32)  # Two blocks.
  >>> [part.shape for part in stream_blocks(lambda x: (x, x.sum(-1)), rows)]
  [(300, 2), (300,)]

  Args:
    apply: rows to a tuple of arrays; sees a block at a time, the last one padded.
    rows: on the host, or on a disk.
  """
  size, done, running = mesh.round_up(_BLOCK), [], []
  put = lambda start: mesh.put_sharded(rows[start : start + size], size)
  starts = range(0, max(len(rows), 1), size)

  def collect():
    start, parts = running.pop(0)
    if not done:  # Once for all rows: they would be there twice at the end.
      done.extend(
        np.empty((len(rows), *part.shape[1:]), part.dtype) for part in parts
      )
    for whole, part in zip(done, parts, strict=True):
      # On the host: lengths differ, and each would be a program.
      whole[start : start + size] = np.asarray(part)[: len(rows) - start]

  with contextlib.closing(read_ahead(put, starts)) as blocks:
    for start, block in zip(starts, blocks, strict=True):
      running.append((start, jax.tree.leaves(apply(block))))
      if len(running) > 1:  # Blocks that nobody waits for would pile up.
        collect()
  collect()
  return done
