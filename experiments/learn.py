"""Class-incremental learning of any of the data sets.

  python -m experiments.learn --dataset=digits --phases=5

Those that have a command of their own, such as experiments.digits, do the same
there.
"""

from absl import flags

from experiments import command, datasets, options
from experiments import presets as presets_lib

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(options)
for _name in datasets.KNOWN_FLAGS:
  flags.declare_key_flag(_name)


def presets() -> presets_lib.Presets:
  """Those of the chosen data set."""
  return presets_lib.of(FLAGS.dataset)


def main(_) -> None:
  datasets.learn(FLAGS.dataset)


if __name__ == "__main__":
  command.run(main, presets=presets)
