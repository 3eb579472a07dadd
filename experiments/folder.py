"""Class-incremental learning of your own images.

  python -m experiments.folder --data=DIR --base_classes=4 --phases=3

DIR holds train/<class>/*.jpg (png, bmp and webp too) and perhaps
val/<class>/*; without val/ a part of each class is held out for testing.
"""

import functools

from absl import flags

from experiments import (
  class_names,
  command,
  datasets,
  options,
  running,
)
from mnemonics_jax import data
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import presets

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(options)
flags.adopt_module_key_flags(class_names)
for _option in data.SOURCES["folder"].options:
  flags.declare_key_flag(_option)

flags.DEFINE_string("data", None, "Directory with one folder per class.")
_NAME = flags.DEFINE_string(
  "name", "folder", "What to call the data in titles and reports."
)

preset_values = functools.partial(presets.values, "folder")


def main(_) -> None:
  if not FLAGS.data:
    raise UserError(
      "data", "`data` is missing", "--data=DIR names one with train/<class>/"
    )
  settings = options.settings_from_flags("folder")
  names = class_names.given()
  running.run_experiment(
    settings,
    lambda: datasets.load(settings, FLAGS.data, names=names, title=_NAME.value),
  )


if __name__ == "__main__":
  command.run(main, preset_values=preset_values)
