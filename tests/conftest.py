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
