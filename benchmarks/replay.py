"""Which exemplars survive being replayed, before any real phase is run.

  python -m benchmarks.replay --dataset=cifar100 --data_dir=DIR --seeds=0,1,2
  python -m benchmarks.replay --quick    # digits, a minute

Phase 0 is learned once for each seed. Each form of exemplars then makes a memory of
its own, and goes through the same imitation of a next phase: rotated images are the
new classes (`exemplars/future.py`), trained with the method's own loss. They are
others than those for which `drifted` and `imitated` exemplars are learned, and turned
by another angle. What counts is the loss on images of the first classes afterwards.
Those are held-out training images: choosing a form by it looks at no test image.
Differences are paired by seed.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.measure import Benchmark
from mnemonics_jax import data, phase, protocol
from mnemonics_jax.exemplars.future import next_phase
from mnemonics_jax.losses import cross_entropy
from mnemonics_jax.settings import Settings, presets
from mnemonics_jax.settings.build import build

# By name the settings that make a form of exemplars.
FORMS: dict[str, dict[str, Any]] = {
  "herding": dict(exemplars="herding"),
  "random": dict(exemplars="random"),
  "selected": dict(exemplars="selected"),
  "learned": dict(exemplars="mnemonics"),
  "learned_4": dict(exemplars="mnemonics", max_change=4),
  "low": dict(exemplars="mnemonics", frequencies=3),
  "low_8": dict(exemplars="mnemonics", frequencies=3, max_change=8),
  "drifted": dict(exemplars="mnemonics", drift=2),
  "imitated": dict(exemplars="mnemonics", imitate=True),
}


def settings_of(options: Any) -> Settings:
  """What all forms share."""
  dataset = "digits" if options.quick else options.dataset
  preset = "smoke" if options.quick else options.preset
  common = dict(presets.of(dataset)[preset])
  common |= dict(method=options.method, tuning_fraction=0.1, rehearsal="once")
  names = ("memory", "codec", "images_per_class")
  given = {name: options[name].value for name in names}
  common |= {name: value for name, value in given.items() if value}
  return Settings(dataset, options.preset, **common)


def replay(bench: Benchmark) -> None:
  """The loss and the accuracies that each form leaves, and differences."""
  options, settings = bench.options, settings_of(bench.options)
  loaded = data.load(settings.dataset, options.data_dir)
  found: dict[str, list[dict[str, float]]] = {}
  first, seeds = options.forms[0], list(map(int, options.seeds))
  for number, seed in enumerate(seeds, 1):
    base = _base_model(settings, loaded, seed)
    for form in options.forms:
      found.setdefault(form, []).append(
        after_a_next_phase(settings, loaded, seed, form, base)
      )
      print(f"seed {seed}, {form}: {found[form][-1]}", flush=True)
    bench.add(  # After each seed: the next one may not survive.
      f"{settings.dataset}_{options.preset}_{options.method}",
      f"After an imitated next phase, paired with {first}",
      [_row(form, rows, found[first]) for form, rows in found.items()],
      _shown,
      settings=settings.identity(),
      seeds=seeds[:number],
    )


def _base_model(settings, loaded, seed):
  """Θ_0: the same for all forms."""
  config, stream = build(settings, loaded)
  start = phase.begin_run(seed, config)
  return phase.train_model(phase.Phase(start, stream[0], config))


def after_a_next_phase(
  settings: Settings, loaded: data.Dataset, seed: int, form: str, base: Any
) -> dict[str, float]:
  """What a form of exemplars leaves of the first classes.

  Args:
    settings: of everything else.
    loaded: the data set.
    seed: of all randomness.
    form: one of `FORMS`.
    base: Θ_0.
  """
  config, stream = build(dataclasses.replace(settings, **FORMS[form]), loaded)
  start = phase.begin_run(seed, config)
  state, first = phase.run_phase(
    start, stream[0], config, train=lambda *_: base
  )
  now = phase.Phase(start, stream[0], config)
  follow = next_phase(
    now,
    state.variables,
    state.memory,
    stream.classes_per_phase[1],
    turns=2,
    last=True,
  )
  # The imitated classes get exemplars of one kind, whatever the form is.
  plain = dataclasses.replace(config, exemplars="herding", adjust=False)
  state, last = phase.run_phase(follow.state, follow.data, plain)
  learned = first.diagnostics.get("exemplars", {})
  return {
    "loss": _loss(config, state, last),
    "head": protocol.accuracy(last.confusion["final"]["head"]),
    "trained": protocol.accuracy(last.confusion["trained"]["head"]),
    "nme": protocol.accuracy(last.confusion["final"]["nme"]),
    "change": float(learned.get("mean_change", 0.0)),
  }


def _loss(config, state, result):
  """Cross-entropy of the head on what was tested, among all classes seen."""
  features, labels = result.test_features
  outputs = config.model.read_out(state.variables, jnp.asarray(features))
  logits = config.method.logits(state.variables, outputs)
  seen = jnp.arange(config.model.classes) < state.classes_seen
  return float(cross_entropy(logits, jnp.asarray(labels), seen))


_MEASURED = ("loss", "head", "trained", "nme", "change")


def _row(form, rows, reference):
  """Means over seeds, and differences to a reference with their intervals."""
  values = {name: np.array([row[name] for row in rows]) for name in _MEASURED}
  others = {name: [row[name] for row in reference] for name in _MEASURED}
  row: dict[str, Any] = {"form": form}
  for name in _MEASURED:
    row[name] = float(values[name].mean())
    mean, ci95 = protocol.confidence_interval(
      (values[name] - others[name]).tolist()
    )
    row[f"{name}_difference"], row[f"{name}_ci95"] = mean, ci95
  return row


def _shown(row):
  def cell(name, scale, digits):
    text = f"{scale * row[name]:.{digits}f}"
    difference, ci95 = row[f"{name}_difference"], row[f"{name}_ci95"]
    if not difference:
      return text
    text += f" ({scale * difference:+.{digits}f}"
    return text + (")" if ci95 is None else f" ± {scale * ci95:.{digits}f})")

  return {
    "form": row["form"],
    "loss": cell("loss", 1, 3),
    "head %": cell("head", 100, 2),
    "head % before fine-tune": cell("trained", 100, 2),
    "nme %": cell("nme", 100, 2),
    "mean change": f"{row['change']:.2f}",
  }


BENCHMARK = Benchmark(
  "replay",
  dict(replay=replay),
  dataset=("cifar100", "What is learned: cifar100 or digits."),
  data_dir=(str, "Where CIFAR-100 is."),
  preset=("short", "Network and schedule."),
  method=("lucir", "The base method."),
  forms=(
    ["herding", "random", "selected", "learned", "low", "low_8"],
    f"Of {', '.join(FORMS)}; the first is what others are compared with.",
  ),
  seeds=(["0"], "One after the other."),
  images_per_class=(0, "Train on only the first images of each class."),
  memory=(str, "Instead of the preset's."),
  codec=(str, "Instead of the preset's."),
)

if __name__ == "__main__":
  BENCHMARK.run()
