"""Class-incremental learning of scikit-learn's digits: the method in minutes.

  python -m experiments.digits
  python -m experiments.digits --method=icarl --memory=per_class:2 --seeds=0,1,2

1,797 images of 8×8 pixels come with scikit-learn, nothing is downloaded: 5
digits are learned first, then the others one by one.
"""

import functools

from absl import flags

from experiments import command, datasets, options
from mnemonics_jax.settings import presets

flags.adopt_module_key_flags(options)

preset_values = functools.partial(presets.values, "digits")


def main(_) -> None:
  datasets.learn("digits")


if __name__ == "__main__":
  command.run(main, preset_values=preset_values)
