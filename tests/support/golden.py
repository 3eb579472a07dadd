"""Numbers of small runs, written down for every version of the numerics.

  PYTHONPATH=tests:. python -m support.golden

adds those of the version in `mnemonics_jax/package.py`, or of runs that are new here.
What is written is never replaced: other numbers are another version.
"""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np

from mnemonics_jax import bilevel, memory, methods, phase
from mnemonics_jax.package import NUMERICS
from mnemonics_jax.progress import Event, StepReport
from support import tiny

PATH = Path(__file__).parents[1] / "golden_numbers.json"

# Few steps: what is rounded differently elsewhere does not grow.
_ONCE = phase.Schedule(2, 0.02, (1,), batch_size=16)
_COMMON = dict(split=(2, 1), base=_ONCE, train=_ONCE, balance=_ONCE)
RUNS = {
  "lucir": dict(
    _COMMON, exemplars="mnemonics", adjust=True, transfer="in_out",
    finetune="all",
  ),
  "bic": dict(_COMMON, exemplars="herding", finetune="head"),
  # The whole network unrolled, as in the paper.
  "lwf": dict(
    _COMMON, exemplars="mnemonics",
    bilevel=bilevel.BilevelConfig.paper(inner_steps=2, epochs=1),
  ),
  "icarl_bce": dict(_COMMON, exemplars="herding"),
  "e2e": dict(_COMMON, exemplars="random", finetune="all"),
  # Exemplars that should survive replay, and bytes. None is learned through a
  # codec, which makes much of a little rounding.
  "lucir drifted": dict(
    _COMMON, exemplars="mnemonics", drift=1,
    bilevel=dataclasses.replace(tiny.RECIPE, epochs=1, frequencies=3),
  ),
  "lucir imitated": dict(
    _COMMON, split=(2, 1, 1), exemplars="mnemonics", imitate=True,
    bilevel=dataclasses.replace(tiny.RECIPE, epochs=1, inner_steps=2),
  ),
  "lwf coded": dict(
    _COMMON, exemplars="herding", codec=memory.Jpeg(50), code_new=True
  ),
  "lucir selected": dict(
    _COMMON, exemplars="selected", rehearsal="2", finetune="head",
    codec=memory.Jpeg(50), train=dataclasses.replace(_ONCE, curve="one_cycle"),
    memory=memory.fit(
      memory.PerClassBytes(400), memory.Jpeg(50), tiny.dataset().train_images
    ),
  ),
}  # fmt: skip


def measure() -> dict[str, list[float]]:
  """Losses of all epochs, and what the runs end with."""
  return {
    f"{name}/{key}": [float(f"{value:.7g}") for value in values]
    for name, options in RUNS.items()
    for key, values in _run(name, options).items()
  }


def _run(name, options):
  method = methods.METHODS[name.split()[0]]()
  config, stream = tiny.setup(method, **options)
  found = {}

  def hear(event: Event) -> None:
    if isinstance(event, StepReport) and "loss" in (event.metrics or {}):
      losses = found.setdefault(f"{event.stage}/loss", [])
      losses.append(dict(event.metrics or {})["loss"])

  state, features = phase.begin_run(0, config), np.zeros(0)
  for data in stream:
    state, result = phase.run_phase(state, data, config, report=hear)
    features = result.test_features[0]
  images = state.memory.images.astype(np.float64)
  weights = jax.tree.leaves(state.variables)
  return found | {
    "features": [features.mean(), features.std()],
    "weights": [sum(float(abs(w).sum()) for w in weights)],
    "memory": [images.mean(), images.std()],
  }


def written() -> dict[str, dict[str, list[float]]]:
  """The numbers of all versions, by version."""
  return json.loads(PATH.read_text()) if PATH.exists() else {}


def main() -> None:
  numbers, found = written(), measure()
  known = numbers.get(str(NUMERICS), {})
  if found.keys() <= known.keys():
    raise SystemExit(f"{PATH} has numbers of {NUMERICS}; raise NUMERICS first.")
  added = {name: v for name, v in found.items() if name not in known}
  numbers[str(NUMERICS)] = known | added
  PATH.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
  main()
