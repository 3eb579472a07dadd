"""Lists the caches that make the next start faster, and removes them.

  python -m experiments.cache            lists them with their sizes
  python -m experiments.cache --clear    removes them; they are made again when needed

They hold decoded images and compiled programs, in ~/.cache/mnemonics_jax or
$XDG_CACHE_HOME/mnemonics_jax. Runs and their results are not here.
"""

from pathlib import Path
import shutil

from absl.flags import DEFINE_bool, FlagValues

from experiments import command
from mnemonics_jax import files
from mnemonics_jax.errors import UserError

FLAGS = FlagValues()
DEFINE_bool("clear", False, "Remove the caches.", flag_values=FLAGS)


def main() -> None:
  root = files.user_cache()
  entries = sorted(root.iterdir()) if root.is_dir() else []
  print(f"{root}: {_megabytes(sum(map(_size, entries)))}")
  for entry in entries:
    print(f"  {entry.name:40} {_megabytes(_size(entry)):>10}")
  if FLAGS.clear and entries:
    try:
      shutil.rmtree(root)
    except OSError as error:
      raise UserError(
        "clear", f"{root} cannot be removed ({error})", "remove it by hand"
      ) from error
    print("Removed.")


def _size(path: Path) -> int:
  inside = [path] if path.is_file() else path.rglob("*")
  return sum(file.stat().st_size for file in inside if file.is_file())


def _megabytes(size: int) -> str:
  return f"{size / 1e6:,.1f} MB"


if __name__ == "__main__":
  with command.session(__doc__, FLAGS):
    main()
