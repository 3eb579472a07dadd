"""A network with its head; functions of images, applied block by block.

Blocks keep the memory bounded.
"""

from collections.abc import Callable, Iterable
import contextlib
import dataclasses
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from mnemonics_jax.data.images import Images
from mnemonics_jax.nn.heads import Head
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.parallel import mesh
from mnemonics_jax.parallel.prefetch import read_ahead
from mnemonics_jax.types import PyTree, Variables


class Outputs(NamedTuple):
  """One forward pass.

  Attributes:
    features: output of the network, input of the head.
    logits: scores before the softmax, for all classes of the run.
    cosines: logits without the cosine head's σ.
  """

  features: Float[Array, "n d"]
  logits: Float[Array, "n classes"]
  cosines: Float[Array, "n classes"]


@dataclasses.dataclass(frozen=True)
class Model:
  """A hashable description; all arrays live in `variables`.

  Attributes:
    network: images → features.
    head: features → scores.
    classes: number of classes of the whole run, seen or not.
  """

  network: Network
  head: Head
  classes: int

  def init(self, key: Array) -> Variables:
    """Random `params` of backbone and head, and `batch_stats`."""
    network_key, head_key = jax.random.split(key)
    variables = self.network.init(network_key)
    head = self.head.init(head_key, self.network.feature_dim, self.classes)
    params = {"backbone": variables["params"], "head": head}
    return {"params": params, "batch_stats": variables.get("batch_stats", {})}

  def apply(
    self,
    variables: Variables,
    images: Float[Array, "n h w c"],
    train: bool = False,
  ) -> tuple[Outputs, PyTree]:
    """Outputs and the batch statistics after this batch."""
    features, batch_stats = self.network.features(
      backbone(variables), images, train
    )
    return self.read_out(variables, features), batch_stats

  def read_out(
    self, variables: Variables, features: Float[Array, "n d"]
  ) -> Outputs:
    """The head's scores of features."""
    scores = self.head.scores(variables["params"]["head"], features)
    return Outputs(features, *scores)


def backbone(variables: Variables) -> Variables:
  """The network's own variables."""
  return variables | {"params": variables["params"]["backbone"]}


# One block size for all images on the host, so one compiled program.
_BLOCK = 256


def map_blocks(apply: Callable[[Array], Array], images: Array) -> Array:
  """`apply(images)` in a compiled program, for images on the device.

  Args:
    apply: rows to rows; it gets a block at a time, the last one padded.
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
  """`apply(rows)`, as arrays on the host, for rows on the host or on a disk.

  One program serves any number of rows. The next block is read while one is
  computed. `apply` gets a block at a time, the last one padded.
  """
  size, done, running = mesh.round_up(_BLOCK), [], []
  put = lambda start: mesh.put_sharded(rows[start : start + size], size)
  starts = range(0, max(len(rows), 1), size)

  def collect():
    start, parts = running.pop(0)
    if not done:  # Joining blocks at the end would need twice the memory.
      done.extend(
        np.empty((len(rows), *part.shape[1:]), part.dtype) for part in parts
      )
    for whole, part in zip(done, parts, strict=True):
      # On the host, since each length would be a program of its own.
      whole[start : start + size] = np.asarray(part)[: len(rows) - start]

  with contextlib.closing(read_ahead(put, starts)) as blocks:
    for start, block in zip(starts, blocks, strict=True):
      running.append((start, jax.tree.leaves(apply(block))))
      if len(running) > 1:  # Otherwise blocks would pile up.
        collect()
  collect()
  return done
