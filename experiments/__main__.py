"""`mnemonics-jax EXPERIMENT [flags]`: the experiments under one name."""

import difflib
import importlib
import sys

from absl import flags

from experiments import command
from experiments import help as help_lib

# Some take arguments that are not flags.
WITH_ARGUMENTS = ("report", "predict", "export", "extend", "publish")
LEARNING = ("digits", "cifar", "imagenet", "folder", "learn")
EXPERIMENTS = (*LEARNING, "tables", *WITH_ARGUMENTS, "cache")


def main() -> None:
  name = sys.argv[1] if len(sys.argv) > 1 else ""
  if name not in EXPERIMENTS:
    wanted = help_lib.asked([name])
    near = difflib.get_close_matches(name, EXPERIMENTS, n=1, cutoff=0.5)
    guess = f"error: there is no command {name!r}; " if name else ""
    guess += f"did you mean {near[0]}?\n" if near else "\n" if guess else ""
    print(
      f"{'' if wanted else guess}"
      f"usage: mnemonics-jax {{{'|'.join(EXPERIMENTS)}}} [flags]\n"
      "       mnemonics-jax digits --help",
      file=sys.stdout if wanted else sys.stderr,
    )
    sys.exit(0 if wanted else 2)
  module = importlib.import_module(f"experiments.{name}")
  sys.argv = [f"mnemonics-jax {name}", *sys.argv[2:]]
  # Help and `config.json` speak of the experiment, not of this door to it.
  sys.modules["__main__"].__doc__ = module.__doc__
  sys.modules["__main__"].__spec__ = module.__spec__
  for flag in flags.FLAGS.get_key_flags_for_module(module):
    # Makes `--help` show the experiment's flags.
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
  command.run(
    module.main,
    arguments=name in WITH_ARGUMENTS,
    preset_values=getattr(module, "preset_values", None),
  )


if __name__ == "__main__":
  main()
