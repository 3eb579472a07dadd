"""Class-incremental learning of scikit-learn's digits: the method in minutes.

  python -m experiments.digits
  python -m experiments.digits --method=icarl --memory=per_class:2 --seeds=0,1,2

1,797 images of 8×8 pixels come with scikit-learn, nothing is downloaded: 5
digits are learned first, then the others one by one.
"""

from absl import flags

from experiments import command, options, running
from experiments.paper import MNEMONICS
from mnemonics_jax import data

flags.adopt_module_key_flags(options)

_COMMON = dict(
  net="resnet8",
  augment="crop",
  base_classes=5,
  phases=5,
  memory="per_class:5",
  batch_size=64,
)
_SHORT = dict(_COMMON, finetune="head")  # results/defaults tells why.
PRESETS = {
  "paper": dict(
    _COMMON,
    batch_size=128,
    reference_code=True,
    recipe="paper",
    init_exemplars="random",
    **MNEMONICS,
  ),
  "short": dict(_SHORT, epochs=30, base_epochs=30, finetune_epochs=20),
  "smoke": dict(_SHORT, epochs=2, base_epochs=3, finetune_epochs=2),
}


def main(_) -> None:
  settings = options.settings_from_flags("digits", PRESETS)
  running.run_experiment(settings, lambda: data.load("digits"))


if __name__ == "__main__":
  command.run(main, presets=PRESETS)
