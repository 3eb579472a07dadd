"""A made-up work directory in the format that runs leave behind."""

from collections.abc import Sequence
import json
from pathlib import Path
from typing import Any

import numpy as np

from mnemonics_jax.runs.results import Run, load_run

SCRIPT_NAME = "<script>alert(1)</script>"


def confusion(groups, diagonal):
  """Counts with `diagonal` of 20 right per class, errors going to the next."""
  n = sum(groups)
  counts = np.zeros((n, n), np.int64)
  for row in range(n):
    counts[row, row] = diagonal
    counts[row, (row + 1) % n] += 20 - diagonal
  return counts


def arrays(
  path: Path, seed: int, groups, slots: int, size: int, learned: bool
) -> None:
  """Confusion counts and a memory of coloured blocks after the last phase."""
  seen = sum(groups)
  counts = confusion(groups, 15 - seed)
  blobs = np.random.RandomState(seed).randint(0, 256, (seen, slots, 2, 2, 3))
  images = np.kron(blobs, np.ones((1, 1, size // 2, size // 2, 1)))
  directory = path / f"seed_{seed}"
  directory.mkdir(exist_ok=True)
  last = len(groups) - 1
  if learned:
    for phase in range(last):
      more: dict[str, Any] = details(phase, groups, size)
      np.savez(directory / f"phase_{phase:02d}.npz", **more)
  np.savez(
    directory / f"phase_{last:02d}.npz",
    **{
      "confusion/final/head": counts,
      "confusion/final/nme": counts[::-1, ::-1],
      "confusion/trained/head": counts,
      "memory/images": images.astype(np.uint8),
      "memory/counts": np.full(seen, slots),
      **(details(last, groups, size) if learned else {}),
    },
  )


def details(phase: int, groups, size: int) -> dict[str, np.ndarray]:
  """Changed images and features of a phase.

  Every image gains 2 grey levels of red in its upper left quarter and nothing
  elsewhere; features are the class's own axis, of eight, with a little noise,
  those of exemplars have none.
  """
  start, seen = sum(groups[:phase]), sum(groups[: phase + 1])
  out, random = {}, np.random.RandomState(phase)
  stages = {"exemplars": range(start, seen), "adjust": range(start)}
  for stage, classes in stages.items():
    labels = np.repeat(np.array(classes[:10], int), 2)
    blobs = random.randint(10, 246, (len(labels), 2, 2, 3))
    before = np.kron(blobs, np.ones((1, size // 2, size // 2, 1), int))
    after = before.copy()
    after[:, : size // 2, : size // 2, 0] += 2
    if len(labels):
      for name, values in {"before": before, "after": after}.items():
        out[f"changed/{stage}/{name}"] = values.astype(np.uint8)
      out[f"changed/{stage}/labels"] = labels
  for kind, each, noise in (("test", 4, 0.2), ("exemplars", 1, 0.0)):
    labels = np.repeat(np.arange(seen), each)
    features = 3 * np.eye(8)[labels % 8] + noise * random.randn(len(labels), 8)
    out[f"features/{kind}"] = features.astype(np.float16)
    out[f"features/{kind}_labels"] = labels
  return out


def history(phase: int, seed: int, epochs: int = 3) -> dict[str, list[float]]:
  """Distances that name their place: phase.seed and the epoch."""
  epoch = np.arange(1, epochs + 1)
  place = phase + 0.1 * seed
  return {
    "loss": (1 / epoch).tolist(),
    "displacement": (place + 0.01 * epoch).tolist(),
    "cosine": (place + 0.02 * epoch).tolist(),
    "euclidean": (place + 0.03 * epoch).tolist(),
  }


def write(
  path: Path,
  *,
  groups=(3, 1, 1),
  seeds=(0, 1),
  size=8,
  slots=4,
  epochs=3,
  method="lucir",
  exemplars="herding",
  finetune=True,
  learned=False,
  offset=0.0,
  names=None,
) -> Path:
  """Writes config, metrics, results and arrays; returns the directory.

  Seed s has accuracy 0.9 - 0.1 phase - 0.02 s for `head` and 0.05 less for
  `nme` (plus `offset`), so that summaries can be worked out by hand. With
  `learned`, there are also the arrays and histories of learned exemplars.
  """
  path.mkdir(parents=True, exist_ok=True)
  n_classes = sum(groups)
  step = 0.1 if len(groups) < 8 else 0.4 / len(groups)
  odd = [SCRIPT_NAME, "price $x_1", "cost $y^2$ & \u00fcber \u2603"]
  names = names or [*odd, *(f"class {i}" for i in range(3, n_classes))]
  runs, lines = [], []
  for seed in seeds:
    phases = []
    for phase in range(len(groups)):
      seen = sum(groups[: phase + 1])
      head = 0.9 - step * phase - 0.02 * seed + offset
      accuracy = {"head": head, "nme": head - 0.05}
      memory = {"images": slots * seen, "bytes": slots * seen * size**2 * 3}
      phases.append(_phase(phase, seen, accuracy, memory, finetune))
      if learned:
        phases[-1]["diagnostics"] = {"exemplars": history(phase, seed)} | (
          {"adjust": history(phase, seed, 6)} if phase else {}
        )
      if seen == n_classes:  # Reports only look at the end of the run.
        arrays(path, seed, groups, slots, size, learned)
      stages = ("train", "finetune") if finetune else ("train",)
      lines += _metrics(seed, phases[-1], stages, epochs)
    average = {
      name: float(np.mean([p["accuracy"][name] for p in phases]))
      for name in ("head", "nme")
    }
    forgetting = {"head": 0.12 - 0.02 * seed, "nme": 0.08}
    runs.append(
      {
        "seed": seed,
        "phases": phases,
        "average": average,
        "forgetting": forgetting,
      }
    )
  results = {
    "title": f"digits · {method} · {exemplars} · per_class:{slots}",
    "dataset": "digits",
    "method": method,
    "exemplars": exemplars,
    "memory": f"per_class:{slots}",
    "readout": "head",
    "preset": "short",
    "schedule": "reduced",
    "departures": ["epochs 3 (paper: 160)", "net tiny"],
    "classes_per_phase": list(groups),
    "class_names": list(names[:n_classes]),
    "seeds": list(seeds),
    "runs": runs,
    "summary": _summary(runs, len(groups)),
  }
  config = _config(method, exemplars, seeds, epochs)
  (path / "results.json").write_text(json.dumps(results), encoding="utf-8")
  (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
  (path / "metrics.jsonl").write_text(
    "".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8"
  )
  return path


def _phase(phase, seen, accuracy, memory, finetune):
  changes = {"trained": 0.04 if finetune and phase else 0.0, "final": 0.0}
  return {
    "phase": phase,
    "classes_seen": seen,
    "accuracy": accuracy,
    "by_group": {
      name: [value - 0.01 * (phase - g) for g in range(phase + 1)]
      for name, value in accuracy.items()
    },
    "moments": {
      moment: {
        name: {
          "all": value - change,
          "old": value - 0.02 - change if phase else None,
          "new": value + 0.03 + change / 2,
        }
        for name, value in accuracy.items()
      }
      for moment, change in changes.items()
    },
    "memory": memory,
  }


def _metrics(seed, record, stages, epochs):
  phase = record["phase"]
  place = {"seed": seed, "phase": phase}
  lines = [
    {
      "kind": "epoch",
      **place,
      "stage": stage,
      "epoch": epoch,
      "loss": (2.0 + 0.1 * seed) / (1 + epoch + 0.2 * phase),
      "accuracy": 1 - 0.5 / (1 + epoch),
      "lr": 0.1,
      "seconds": 0.5,
    }
    for stage in stages
    for epoch in range(epochs)
  ]
  end = {
    "kind": "phase",
    "seed": seed,
    **record,
    "seconds": {"train": 2.0, "evaluate": 0.5},
  }
  return [*lines, end]


def _summary(runs, phases):
  def estimate(values):
    if len(values) == 1:
      return {"mean": values[0], "ci95": None}
    # 12.706 is Student's t for two seeds; good enough for any number here.
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    t = 12.706 if len(values) == 2 else 2.776
    return {"mean": float(np.mean(values)), "ci95": float(t * error)}

  return {
    name: {
      "average": estimate([run["average"][name] for run in runs]),
      "forgetting": estimate([run["forgetting"][name] for run in runs]),
      "per_phase": [
        estimate([run["phases"][i]["accuracy"][name] for run in runs])
        for i in range(phases)
      ],
    }
    for name in ("head", "nme")
  }


def _config(method, exemplars, seeds, epochs):
  return {
    "command": f"python -m experiments.digits --method={method} --workdir='a b'",
    "settings": {
      "method": method,
      "exemplars": exemplars,
      "seeds": list(seeds),
      "epochs": epochs,
      "lr": 0.1,
      "bad": "<b>&",
    },
    "environment": {
      "python": "3.11.9",
      "packages": {"jax": "0.10.2", "flax": "0.12.8"},
      "git_commit": "0123abc",
      "machine": "x86_64",
      "cores": 2,
      "created": "2024-01-01T00:00:00",
    },
  }


def write_mapped(
  path: Path, groups: Sequence[int], known=None, **options
) -> Run:
  """A run with features, of whose classes `known` shares are recognised."""
  path = write(path, groups=groups, seeds=(0,), learned=True, **options)
  file = path / "seed_0" / f"phase_{len(groups) - 1:02d}.npz"
  if known is not None:
    with np.load(file) as saved:
      arrays = dict(saved)
    right = np.round(100 * np.array(known)).astype(int)
    counts = np.diag(right)
    counts[:, 0] += 100 - right
    changed: dict[str, Any] = {**arrays, "confusion/final/head": counts}
    np.savez(file, **changed)
  return load_run(path)
