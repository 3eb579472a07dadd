"""Class-incremental learning of any of the data sets.

  python -m experiments.learn --dataset=digits --phases=5

Those that have a command of their own, such as experiments.digits, do the same
there.
"""

from collections.abc import Mapping
from typing import Any

from absl import flags

from experiments import command, datasets, options
from mnemonics_jax.settings import presets

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(options)
for _name in datasets.KNOWN_FLAGS:
  flags.declare_key_flag(_name)


def preset_values(preset: str, given: Mapping[str, Any]) -> dict[str, Any]:
  """Those of the chosen data set."""
  return presets.values(FLAGS.dataset, preset, given)


def main(_) -> None:
  datasets.learn(FLAGS.dataset)


if __name__ == "__main__":
  command.run(main, preset_values=preset_values)
