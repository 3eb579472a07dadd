"""Compares twelve small runs of this code with those of an older commit.

  make parity BASE=de09587
  python tests/parity.py --base=de09587 --only=resumed

Use it before and after a change that must not move a number. Each run is a few
commands in a directory of its own. Exit codes, names of files, JSON without
seconds, tables and arrays must be equal, arrays to the bit. Figures, pages and the
checksums of files are not compared. The old runs stay in build/parity/COMMIT, so
that the next comparison does not repeat them. Ends with code 1 on a difference.
"""

import argparse
from collections.abc import Iterator
import contextlib
import json
import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
_TINY = "--preset=smoke --phases=2 --base_epochs=2 --epochs=2 --notensorboard"
_PLAIN = f"digits {_TINY} --images_per_class=20"
_DIGITS = f"{_PLAIN} --meta_epochs=2"
_FOLDER = f"folder --data=images {_TINY} --meta_epochs=2 --workdir=runs/folder"
_STOPPED = f"{_DIGITS} --adjust --workdir=runs/run --checkpoint_every=0"

# Commands of each run, in their order. `until=TEXT` is not typed: it sends SIGTERM
# when the command prints TEXT.
RUNS: dict[str, tuple[str, ...]] = {
  "lwf": (f"{_PLAIN} --method=lwf --exemplars=random --seeds=0,1",),
  "icarl": (
    f"{_PLAIN} --method=icarl --exemplars=herding --codec=jpeg:75 --code_new"
    " --memory=total_bytes:4000",
  ),
  "icarl_bce": (
    f"{_DIGITS} --method=icarl_bce --transfer=out --adjust --rehearsal=balanced",
  ),
  "e2e": (f"{_PLAIN} --method=e2e --finetune=all --codec=webp:50 --exemplars=herding",),
  "bic": (f"{_DIGITS} --method=bic --exemplars=selected --curve=one_cycle",),
  "joint": (f"{_PLAIN} --method=joint", f"{_PLAIN} --method=joint --adjust"),
  "lucir": (f"{_DIGITS} --finetune=head --adjust --transfer=in_out --drift=2",),
  "imitate": (
    f"{_DIGITS} --imitate --codec=jpeg:75 --memory=per_class_bytes:900"
    " --exemplar_chunk=2",
  ),
  "paper": (
    f"{_DIGITS} --recipe=paper --scope=head --finetune=all --devices=2"
    " --base_models=runs/models",
  ),
  "folder": (f"{_FOLDER} --stream=never", "report runs/folder"),
  "streamed": (f"{_FOLDER} --stream=always --augment=crop_flip",),
  "resumed": (
    f"{_STOPPED} until=1/2·train",
    f"{_STOPPED} until=2/2·adjust",
    _STOPPED,
    "predict runs/run images --csv=predictions.csv",
    "export runs/run --to=exported",
    "predict exported images --csv=again.csv",
  ),
}  # fmt: skip

# In JSON: where, when and how long, which no two runs share. `log` is the length of
# metrics.jsonl, which has seconds.
# An export says since when it has a manifest.
_APART = {"seconds", "environment", "date", "command", "log", "manifest"}
# Figures and pages may change their looks; checksums and locks are about files.
_UNREAD = {"images", "figures", "manifest.json", "lock", ".html", ".log"}


def write_images(directory: Path) -> None:
  """Class folders of photographs that are easy to tell apart."""
  from PIL import Image

  rng = np.random.RandomState(3)
  for label in ("ant", "bee", "cat", "dog", "eel"):
    pattern = rng.randint(0, 256, (40, 40, 3))
    for number in range(12):
      pixels = pattern + rng.randint(-60, 60, pattern.shape)
      path = directory / "images" / label / f"{number}.png"
      path.parent.mkdir(parents=True, exist_ok=True)
      Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def call(tree: Path, directory: Path, line: str, cache: Path) -> int:
  """Runs one command of a tree in a directory; returns its exit code."""
  name, *flags = line.split()
  until = [f.removeprefix("until=") for f in flags if f.startswith("until=")]
  flags = [f for f in flags if not f.startswith("until=")]
  environment = {
    "JAX_COMPILATION_CACHE_DIR": str(cache / "programs"),
    **os.environ,
    "PYTHONPATH": str(tree),
    "XDG_CACHE_HOME": str(cache / directory.parent.name),
    "JAX_PLATFORMS": "cpu",
  }
  with (directory / "said.log").open("a", encoding="utf-8") as log:
    process = subprocess.Popen(
      [sys.executable, "-m", f"experiments.{name}", *flags],
      cwd=directory, env=environment, text=True, encoding="utf-8",
      stdout=subprocess.PIPE, stderr=log,
    )  # fmt: skip
    assert process.stdout is not None
    for said in process.stdout:
      log.write(said)
      if until and until[0] in said.replace(" ", ""):
        process.send_signal(signal.SIGTERM)
        until = []
    return process.wait()


def run(name: str, tree: Path, directory: Path, cache: Path) -> None:
  """All commands of a run; `codes.json` is written last."""
  shutil.rmtree(directory, ignore_errors=True)
  directory.mkdir(parents=True)
  write_images(directory)
  codes = [call(tree, directory, line, cache) for line in RUNS[name]]
  (directory / "codes.json").write_text(json.dumps(codes))


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
  """All leaves of nested dictionaries and lists, by their place."""
  if isinstance(value, list):
    value = dict(enumerate(value))
  if not isinstance(value, dict):
    yield name, value
    return
  for key, part in value.items():
    if key not in _APART:
      yield from flat(part, f"{name}/{key}")


def read(path: Path) -> dict[str, Any]:
  """The content of a file, or of a directory that Orbax wrote."""
  if path.is_dir():
    import orbax.checkpoint as ocp

    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
      return dict(flat(reader.restore(path)))
  if path.suffix == ".jsonl":
    return dict(flat([json.loads(line) for line in path.open()]))
  if path.suffix == ".json":
    return dict(flat(json.loads(path.read_bytes())))
  if path.suffix == ".npz":
    return dict(np.load(path))
  if path.suffix == ".safetensors":
    from safetensors.numpy import load_file

    return {f"/{name}": array for name, array in load_file(path).items()}
  return {"bytes": path.read_bytes()}


def content(directory: Path) -> dict[str, Any]:
  """What a run has left, by name of file and place in it."""
  found = {}
  for path in sorted(directory.rglob("*")):
    name = path.relative_to(directory)
    if _UNREAD & {*name.parts} or path.suffix in _UNREAD:
      continue
    orbax = path.is_dir() and (path / "_METADATA").exists()
    if orbax or (path.is_file() and "arrays" not in name.parts):
      # Base models were Orbax's directory `arrays` once.
      called = str(name).removesuffix(".safetensors")
      found |= {f"{called}{key}": value for key, value in read(path).items()}
  return found


def same(one: Any, other: Any) -> bool:
  """Whether two values have the same type, shape and bits."""
  if hasattr(one, "tobytes") and hasattr(other, "tobytes"):
    one, other = np.asarray(one), np.asarray(other)
    alike = one.dtype == other.dtype and one.shape == other.shape
    return alike and one.tobytes() == other.tobytes()
  return type(one) is type(other) and repr(one) == repr(other)


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
  """The files of a commit, as long as they are needed."""
  with tempfile.TemporaryDirectory() as directory:
    tree = Path(directory) / "tree"
    git("worktree", "add", "--detach", str(tree), commit)
    try:
      yield tree
    finally:
      git("worktree", "remove", "--force", str(tree))


def git(*arguments: str) -> str:
  return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True)


def compare(name: str, old: Path, new: Path) -> bool:
  """Prints whether two runs are equal, and up to eight differences."""
  before, after = content(old), content(new)
  # A setting that is new, and was not given, is written as nothing.
  after = {k: v for k, v in after.items() if v is not None or k in before}
  differ = [
    key
    for key in sorted(before.keys() | after.keys())
    if not (key in before and key in after and same(before[key], after[key]))
  ]
  word = f"{len(differ)} DIFFER" if differ else f"{len(after)} values equal"
  codes = json.loads((new / "codes.json").read_text())
  print(f"{name:10} exit {codes} · {word}", flush=True)
  for key in differ[:8]:
    print(f"  {key}: {before.get(key)!s:.60} → {after.get(key)!s:.60}")
  return not differ


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--base", required=True, help="the older commit")
  parser.add_argument("--only", default="", help="runs with this in their name")
  options = parser.parse_args()
  base = git("rev-parse", "--short", f"{options.base}^{{commit}}").strip()
  place = ROOT / "build" / "parity" / base
  equal = []
  with checked_out(base) as tree:
    for name in (name for name in RUNS if options.only in name):
      old, new = place / "old" / name, place / "new" / name
      if not (old / "codes.json").exists():
        run(name, tree, old, place / "cache")
      run(name, ROOT, new, place / "cache")
      equal.append(compare(name, old, new))
  return 0 if all(equal) else 1


if __name__ == "__main__":
  sys.exit(main())
