"""Class-incremental learning of CIFAR-100: 50 classes, then 50 in N phases.

  python -m experiments.cifar --phases=10 --data_dir=DIR

The data are looked for in --data_dir (default $MNEMONICS_DATA_DIR): a TFDS
directory, or the official cifar-100-python archive. --preset=paper is the
paper's ResNet-32 and 160 epochs a phase, for an accelerator; --preset=fast is
the same network with 40 epochs at first and 10 in later phases.
"""

from experiments import command, flags, running

FLAGS = flags.of_run("cifar100")

if __name__ == "__main__":
  with command.session(__doc__, FLAGS, presets_of="cifar100"):
    running.learn("cifar100", FLAGS)
