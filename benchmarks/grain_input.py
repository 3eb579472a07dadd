"""The same images through grain's worker processes, for `benchmarks.input`."""

from collections.abc import Callable, Iterator
import dataclasses

import numpy as np

from mnemonics_jax.data.images import Draws
from mnemonics_jax.data.shards import Shards


@dataclasses.dataclass(frozen=True)
class Source:
  """What grain calls a random-access source: a view at a time."""

  shards: Shards
  rows: np.ndarray
  draws: Draws

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(self, index: int) -> np.ndarray:
    at = slice(index, index + 1)
    drawn = self.draws._replace(rows=self.draws.rows[at])
    return self.shards.views(self.rows[at], drawn)[0]


def reader(
  shards: Shards, rows: np.ndarray, draws: Draws, workers: int, times: int
) -> Callable[[], Iterator[np.ndarray]]:
  """Gives batches of all rows, `times` over; makes an iterator when called."""
  import grain  # pyright: ignore[reportMissingImports]

  options = grain.MultiprocessingOptions(num_workers=workers)
  # Those that have been opened cannot be sent to another process.
  source = Source(dataclasses.replace(shards), rows, draws)
  dataset = grain.MapDataset.source(source).repeat(times).to_iter_dataset()
  return lambda: iter(dataset.batch(16).mp_prefetch(options))
