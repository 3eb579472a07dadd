"""Class-incremental learning of your own images.

  python -m experiments.folder --data=DIR --base_classes=4 --phases=3

DIR holds train/<class>/*.jpg (png, bmp and webp too) and perhaps
val/<class>/*; without val/ a part of each class is held out for testing.
"""

from absl.flags import DEFINE_string

from experiments import command, flags, names, running
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import Settings

FLAGS = flags.of_run("folder")
flags.define(FLAGS, Settings, only=["data"])
names.define(FLAGS, "class_names")
DEFINE_string(
  "name",
  "folder",
  "What to call the data in titles and reports.",
  flag_values=FLAGS,
)

if __name__ == "__main__":
  with command.session(__doc__, FLAGS, presets_of="folder"):
    if not FLAGS.data:
      raise UserError(
        "data", "`data` is missing", "--data=DIR names one with train/<class>/"
      )
    running.learn("folder", FLAGS)
