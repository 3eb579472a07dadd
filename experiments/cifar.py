"""Class-incremental learning of CIFAR-100: 50 classes, then 50 in N phases.

  python -m experiments.cifar --phases=10 --data_dir=DIR

The data are looked for in --data_dir (default $MNEMONICS_DATA_DIR): a TFDS
directory, or the official cifar-100-python archive. --preset=paper is the
paper's ResNet-32 and 160 epochs a phase, for an accelerator.
"""

from absl import flags

from experiments import command, options, running
from experiments.paper import PAPER

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(options)

flags.DEFINE_string(
  "data_dir",
  None,
  "Directory with CIFAR-100: a TFDS data_dir, cifar-100-python/ or its .tar.gz."
  " The default is $MNEMONICS_DATA_DIR, then ~/tensorflow_datasets.",
)
flags.DEFINE_bool(
  "download", False, "Fetch CIFAR-100 through TFDS if it is not there."
)

PRESETS = {
  "paper": PAPER,
  "short": dict(
    net="resnet8",
    epochs=10,
    base_epochs=20,
    finetune="head",  # results/defaults tells why.
    finetune_epochs=10,
  ),
  "smoke": dict(
    net="resnet8",
    finetune="head",
    epochs=1,
    base_epochs=2,
    finetune_epochs=1,
    meta_epochs=1,
    images_per_class=50,
  ),
}


def main(_) -> None:
  settings = options.settings_from_flags("cifar100", PRESETS)
  running.run_experiment(
    settings,
    lambda: running.load_data(
      "cifar100", FLAGS.data_dir, download=FLAGS.download
    ),
  )


if __name__ == "__main__":
  command.run(main, presets=PRESETS)
