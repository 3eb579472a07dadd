"""Class-incremental learning of your own images.

  python -m experiments.folder --data=DIR --base_classes=4 --phases=3

DIR holds train/<class>/*.jpg (png, bmp and webp too) and perhaps
val/<class>/*; without val/ a part of each class is held out for testing.
"""

from pathlib import Path

from absl import flags

from experiments import class_names, command, options, running
from experiments.paper import PAPER_IMAGENET
from mnemonics_jax.errors import UserError

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(options)

flags.DEFINE_string("data", None, "Directory with one folder per class.")
flags.DEFINE_integer(
  "image_size",
  None,
  "Images are resized and cropped to this many pixels square (64; 224 with"
  " --preset=paper).",
)
_NAME = flags.DEFINE_string(
  "name", "folder", "What to call the data in titles and reports."
)
_CLASS_NAMES = flags.DEFINE_string(
  "class_names",
  None,
  "A text file with a line for each class: the name of its directory, blanks or a"
  " comma, the name to show. ImageNet's n01440764 and so on are known without it.",
)
flags.DEFINE_float(
  "val_fraction",
  None,
  "Share of each class to test on when there is no val/; the default is 0.2.",
)
flags.DEFINE_bool(
  "strict", False, "Stop at an unreadable image instead of skipping it."
)

_SMALL = dict(
  memory="per_class:10",
  val_fraction=0.2,
  net="resnet8",
  augment="resized_crop",
  image_size=64,
  less_forget=10.0,  # As on ImageNet.
  finetune="head",  # results/defaults tells why.
)
PRESETS = {
  "paper": dict(PAPER_IMAGENET, val_fraction=0.2),
  "short": dict(
    _SMALL, epochs=20, base_epochs=40, finetune_epochs=20, batch_size=32
  ),
  "smoke": dict(
    _SMALL,
    epochs=1,
    base_epochs=2,
    finetune_epochs=1,
    meta_epochs=1,
    batch_size=32,
  ),
}


def main(_) -> None:
  if not FLAGS.data:
    raise UserError(
      "data", "`data` is missing", "--data=DIR names one with train/<class>/"
    )
  settings = options.settings_from_flags("folder", PRESETS)
  names = {}
  if _CLASS_NAMES.value is not None:
    names = class_names.read(Path(_CLASS_NAMES.value))

  def load():
    dataset = running.load_data(
      "folder",
      FLAGS.data,
      image_size=settings.image_size,
      val_fraction=settings.val_fraction,
      strict=FLAGS.strict,
    )
    return class_names.rename(dataset, names, _NAME.value)

  running.run_experiment(settings, load)


if __name__ == "__main__":
  command.run(main, presets=PRESETS)
