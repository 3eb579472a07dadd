"""Class-incremental learning of ImageNet: half of its classes, then the rest.

  python -m experiments.imagenet --subset --phases=5 --data_dir=DIR
  python -m experiments.imagenet --full --phases=25 --data_dir=DIR

--subset is ImageNet-Subset, 100 classes; --full is all 1,000. DIR is what
python -m mnemonics_jax.data.prepare has made of the official archives, or of what
became of them. Images are read while they are learned. --preset=paper is the
paper's ResNet-18 and 90 epochs a phase, for an accelerator.
"""

import functools

from absl import flags

from experiments import command, datasets, options
from mnemonics_jax import data
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import presets

flags.adopt_module_key_flags(options)
for _option in data.SOURCES["imagenet"].options:
  flags.declare_key_flag(_option)

_SUBSET = flags.DEFINE_bool("subset", False, "Learn ImageNet-Subset.")
_FULL = flags.DEFINE_bool("full", False, "Learn all of ImageNet.")

# The same for both.
preset_values = functools.partial(presets.values, "imagenet")


def main(_) -> None:
  if _SUBSET.value and _FULL.value:
    raise UserError(
      "subset", "`subset` and `full` cannot both be learned", "leave out one"
    )
  if not (_SUBSET.value or _FULL.value):
    raise UserError(
      "subset",
      "It is not said which ImageNet to learn",
      "add `subset` for 100 classes or `full` for all 1,000",
    )
  datasets.learn("imagenet_subset" if _SUBSET.value else "imagenet")


if __name__ == "__main__":
  command.run(main, preset_values=preset_values)
