"""What all tests share."""

from absl import flags
import jax

# Experiments read absl flags, which nobody parses under pytest.
flags.FLAGS.mark_as_parsed()
jax.config.update("jax_platforms", "cpu")
