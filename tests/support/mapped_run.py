"""A made-up run with features, for maps of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support import report_fixture

from mnemonics_jax.runs.results import Run, load_run


def write(path: Path, groups: Sequence[int], known=None, **options) -> Run:
  """A run with features, of whose classes `known` shares are recognised."""
  path = report_fixture.write(
    path, groups=groups, seeds=(0,), learned=True, **options
  )
  file = path / "seed_0" / f"phase_{len(groups) - 1:02d}.npz"
  if known is not None:
    with np.load(file) as saved:
      arrays = dict(saved)
    right = np.round(100 * np.array(known)).astype(int)
    counts = np.diag(right)
    counts[:, 0] += 100 - right
    changed: dict[str, Any] = {**arrays, "confusion/final/head": counts}
    np.savez(file, **changed)
  return load_run(path)
