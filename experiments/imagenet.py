"""Class-incremental learning of ImageNet: half of its classes, then the rest.

  python -m experiments.imagenet --subset --phases=5 --data_dir=DIR
  python -m experiments.imagenet --full --phases=25 --data_dir=DIR

--subset is ImageNet-Subset, 100 classes; --full is all 1,000. DIR is what
python -m mnemonics_jax.data.prepare has made of the official archives, or of what
became of them. Images are read while they are learned. --preset=paper is the
paper's ResNet-18 and 90 epochs a phase, for an accelerator.
"""

from absl.flags import DEFINE_bool

from experiments import command, flags, running
from mnemonics_jax.errors import UserError

FLAGS = flags.of_run("imagenet", "imagenet_subset")
DEFINE_bool("subset", False, "Learn ImageNet-Subset.", flag_values=FLAGS)
DEFINE_bool("full", False, "Learn all of ImageNet.", flag_values=FLAGS)

if __name__ == "__main__":
  with command.session(__doc__, FLAGS, presets_of="imagenet"):
    if FLAGS.subset and FLAGS.full:
      raise UserError(
        "subset", "`subset` and `full` cannot both be learned", "leave out one"
      )
    if not (FLAGS.subset or FLAGS.full):
      raise UserError(
        "subset",
        "It is not said which ImageNet to learn",
        "add `subset` for 100 classes or `full` for all 1,000",
      )
    running.learn("imagenet_subset" if FLAGS.subset else "imagenet", FLAGS)
