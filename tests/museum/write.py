"""Writes the museum, once and for all: files of commit de09587.

  git worktree add /tmp/old de09587
  PYTHONPATH=/tmp/old:/tmp/old/tests:tests python -m museum.write

Needs pytest's flags of XLA (conftest.py sets them). Later versions open what it has
written; they never write it again. Pieces:

  run, interrupted   a run of two phases, and one stopped while phase 1 adjusts
  learner, export    what `Learner.learn` knew, saved and exported
  base_models        the model of phase 0 of the run; published the same for everybody
  command, table     a run of `experiments.digits`, and cells of a table and a plan,
                     without checkpoints and arrays
  names.json         directories and config.json of commands
  expected.npz       what the learner and the run predict
"""

import contextlib
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile

from museum import made
import numpy as np

from mnemonics_jax import Learner, runs
from mnemonics_jax.runs.base_models import publish

_SMOKE = ("--preset=smoke", "--phases=1", "--images_per_class=10", "--epochs=1")
_PLAIN = ("--notensorboard",)
_TABLE = (
  "--table=2",
  "--dataset=digits",
  "--rows=random,herding",
  "--root=root",
)
_PLAN = """\
title: Whether distilling helps
question: Does it?
decision: It stays if its interval is above zero.
dataset: digits
preset: smoke
phases: [1]
seeds: [0]
settings: {exemplars: herding, images_per_class: 10, epochs: 1}
rows:
  with: {settings: {distill: true}}
  without: {label: without it, settings: {distill: false}, minus: [with]}
"""


def experiment(cwd: Path, *arguments: str) -> None:
  subprocess.run(
    [sys.executable, "-m", *arguments], cwd=cwd, check=True, env=os.environ
  )


def lighten(root: Path) -> None:
  """Leaves what a command asks whether a run has finished, and tables."""
  for path in (*root.rglob("checkpoints"), *root.rglob("base_models")):
    shutil.rmtree(path)
  for path in root.glob(
    "root/*"
  ):  # Cells are in the tables, too: one run stays.
    if path.name != "tables" and "random" not in path.name:
      shutil.rmtree(path)
  for path in [*root.rglob("*")]:
    if path.suffix in (".npz", ".html", ".png", ".csv", ".lock"):
      path.unlink()


def write_runs(room: Path) -> dict[str, np.ndarray]:
  base = dict(base_models=room / "base_models")
  made.run(room / "run", base)
  made.run_until(
    room / "interrupted",
    lambda step: (step.phase, step.stage) == (1, "adjust"),
  )
  (model,) = (room / "base_models").iterdir()
  publish(model, room / "run", room / "published" / "model")
  shutil.rmtree(room / "run/seed_0/checkpoints/phase_00")
  learner, known = Learner.load(room / "run")
  return {"run": learner.predict_proba(known, made.dataset().test_images)}


def write_learner(room: Path) -> dict[str, np.ndarray]:
  data, learner = made.dataset(), made.learner()
  images, labels = data.train_images, data.train_labels
  known = learner.learn(None, images[labels < 2], labels[labels < 2])
  known = learner.learn(known, images[labels == 2], labels[labels == 2])
  learner.save(known, room / "learner")
  runs.export(learner, known, room / "export")
  return {"learner": learner.predict_proba(known, data.test_images)}


def write_commands(room: Path) -> None:
  room.mkdir(parents=True)
  experiment(room, "experiments.digits", *_SMOKE, *_PLAIN, "--workdir=command")
  experiment(room, "experiments.tables", *_TABLE, *_SMOKE, *_PLAIN)
  (room / "plan.yaml").write_text(_PLAN)
  experiment(room, "experiments.tables", "--plan=plan.yaml", "--root=root")
  lighten(room)


def names() -> dict[str, dict]:
  found = {}
  for name in made.NAMED:
    with tempfile.TemporaryDirectory() as directory:
      path = made.named(name, Path(directory))
      config = json.loads((path / "config.json").read_text())
      kept = ("format", "settings", "data", "numerics")
      kept += (
        ("config",) if name in ("bic", "drift", "best", "folder small") else ()
      )
      config = {field: config[field] for field in kept}
      found[name] = {"directory": path.name, "config": config}
  return found


def main() -> None:
  room = Path(sys.argv[1])
  expected = write_runs(room) | write_learner(room)
  np.savez_compressed(room / "expected.npz", **expected)
  write_commands(room / "commands")
  lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in names().items()]
  (room / "names.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
  for lock in room.rglob("lock"):
    with contextlib.suppress(OSError):
      lock.unlink()


if __name__ == "__main__":
  main()
