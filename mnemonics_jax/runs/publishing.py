"""Writes a model of phase 0 for everybody; `published.py` reads it."""

import hashlib
from pathlib import Path
import shutil
from typing import Any

import numpy as np
from safetensors.numpy import save

from mnemonics_jax.errors import UserError
from mnemonics_jax.identity import identity
from mnemonics_jax.runs import checkpoint, journal, layout, learners
from mnemonics_jax.runs.metrics_log import read_metrics
from mnemonics_jax.runs.published import (
  ABOUT,
  FORMAT,
  WEIGHTS,
  flatten,
  made_with,
)


def publish(
  base_model: str | Path, run: str | Path, to: str | Path
) -> dict[str, Any]:
  """Writes a base model that a run began with to a new directory.

  >>> publish("no_model", "finished_run", "published")
  Traceback (most recent call last):
  mnemonics_jax.errors.UserError: there is no base model no_model; name one below the directory of `base_models`.

  Args:
    base_model: one in the directory that the run had as `base_models`.
    run: its work directory; it has ended phase 0, and did not tune the whole model
      at its end.
    to: where to.

  Returns:
    The object of base_model.json.
  """
  base_model, run, to = Path(base_model), Path(run), Path(to)
  try:
    variables, info = checkpoint.restore(base_model)
  except (checkpoint.Damaged, OSError) as error:
    problem = str(error)
    if not base_model.exists():
      problem = f"there is no base model {base_model}"
    raise UserError(
      "model", problem, "name one below the directory of `base_models`"
    ) from error
  if to.exists():
    raise UserError("to", f"{to} exists", "choose a new directory")
  seed = _seed_of(base_model, run, variables)
  config = layout.read_config(run)
  for field in ("results", "data", "numerics"):
    if field not in config:
      raise UserError(
        "run",
        f"{layout.config_path(run)} lacks {field}: an older version wrote it",
        "run it again with this version",
      )
  results = config["results"]
  names = results["class_names"][: results["classes_per_phase"][0]]
  parts = made_with(learners.run_config(run), config["data"], names, seed)
  if parts is None:
    raise UserError(
      "run",
      "the method holds images out for a memory, and others cannot begin with that",
      "publish a model of another method",
    )
  content = _written(variables)
  about = {
    "format": FORMAT,
    "numerics": config["numerics"],
    "dataset": results["dataset"],
    "class_names": names,
    "accuracy": _accuracy(run, seed),
    "made_with": identity(parts),
    "convolutions": info.get("convolutions"),
    "command": config.get("command"),
    "commit": config.get("environment", {}).get("git_commit"),
    "weights_sha256": hashlib.sha256(content).hexdigest(),
  }
  draft = to.with_name(f"{to.name}.draft")
  shutil.rmtree(draft, ignore_errors=True)
  draft.mkdir(parents=True)
  (draft / WEIGHTS).write_bytes(content)
  layout.write_json(draft / ABOUT, about)
  draft.rename(to)
  return about


def _seed_of(base_model, run, variables):
  """The seed of a run that began with a model."""
  backbone = lambda tree: dict(flatten(tree["params"]["backbone"]))
  mine = backbone(variables)
  for seed in layout.seeds(run):
    first = layout.checkpoint_dir(run, seed) / journal.checkpoint_name(0)
    try:
      other = backbone(checkpoint.restore(first)[0]["variables"])
    except (checkpoint.Damaged, OSError):
      continue
    if mine.keys() == other.keys() and all(
      np.array_equal(mine[name], other[name]) for name in mine
    ):
      return seed
  raise UserError(
    "run",
    f"no seed of {run} has ended phase 0 with {base_model}",
    "name the run that began with it; one that fine-tunes whole models has changed"
    " it",
  )


def _accuracy(run, seed):
  """Right after training, by read-out."""
  for line in read_metrics(run):
    place = line.get("kind"), line.get("seed"), line.get("phase")
    moments = line.get("moments", {}).get("trained")
    if place == ("phase", seed, 0) and moments is not None:
      return {name: shares["all"] for name, shares in moments.items()}
  raise UserError("run", f"{run} has no numbers of phase 0", "let it go on")


def _written(variables):
  return save({name: np.array(x, order="C") for name, x in flatten(variables)})
