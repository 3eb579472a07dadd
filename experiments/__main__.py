"""`mnemonics-jax EXPERIMENT [flags]`: the experiments under one name."""

import difflib
import runpy
import sys

from experiments import flags

LEARNING = ("digits", "cifar", "imagenet", "folder", "learn")
# These take arguments that are not flags.
WITH_ARGUMENTS = ("report", "predict", "export", "extend", "publish")
EXPERIMENTS = (*LEARNING, "tables", *WITH_ARGUMENTS, "cache")


def main() -> None:
  name = sys.argv[1] if len(sys.argv) > 1 else ""
  if name in EXPERIMENTS:
    del sys.argv[1]
    runpy.run_module(f"experiments.{name}", run_name="__main__", alter_sys=True)
    return
  wanted = flags.asks_for_help([name])
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


if __name__ == "__main__":
  main()
