"""What all tests share."""

import os

# Tests compile much and compute little: leave the optimiser out. Slow tests
# compute much; `make test-slow` sets XLA_FLAGS itself, to nothing.
os.environ.setdefault(
  "XLA_FLAGS",
  "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
)
os.environ["JAX_PLATFORMS"] = "cpu"

from absl import flags

# Experiments read absl flags, which nobody parses under pytest.
flags.FLAGS.mark_as_parsed()

_LONG = ("resume", "phase", "kill", "bilevel", "experiments", "devices")


def pytest_collection_modifyitems(items):
  """Long files first: workers then end at about the same time."""
  rank = {f"{name}_test": i for i, name in enumerate(_LONG)}
  items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))
