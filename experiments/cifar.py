"""Class-incremental learning of CIFAR-100: 50 classes, then 50 in N phases.

  python -m experiments.cifar --phases=10 --data_dir=DIR

The data are looked for in --data_dir (default $MNEMONICS_DATA_DIR): a TFDS
directory, or the official cifar-100-python archive. --preset=paper is the
paper's ResNet-32 and 160 epochs a phase, for an accelerator; --preset=fast is
the same network with 40 epochs at first and 10 in later phases.
"""

import functools

from absl import flags

from experiments import command, datasets, options
from mnemonics_jax.settings import presets

flags.adopt_module_key_flags(options)
flags.declare_key_flag("data_dir")
flags.declare_key_flag("download")

preset_values = functools.partial(presets.values, "cifar100")


def main(_) -> None:
  datasets.learn("cifar100")


if __name__ == "__main__":
  command.run(main, preset_values=preset_values)
