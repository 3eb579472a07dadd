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

from absl import app, flags
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import measure
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
_QUICK = flags.DEFINE_bool("quick", False, "Digits, few epochs.")
_OUTPUT = flags.DEFINE_string(
  "output", None, "JSON file; the default is below benchmarks/results."
)
_DATASET = flags.DEFINE_enum(
  "dataset", "cifar100", ["cifar100", "digits"], "What is learned."
)
_DATA_DIR = flags.DEFINE_string("data_dir", None, "Where CIFAR-100 is.")
_PRESET = flags.DEFINE_string("preset", "short", "Network and schedule.")
_METHOD = flags.DEFINE_string("method", "lucir", "The base method.")
_FORMS = flags.DEFINE_list(
  "forms", ["herding", "random", "selected", "learned", "low", "low_8"],
  f"Of {', '.join(FORMS)}; the first is what others are compared with.",
)  # fmt: skip
_SEEDS = flags.DEFINE_list("seeds", ["0"], "One after the other.")
_IMAGES = flags.DEFINE_integer(
  "images_per_class", None, "Train on only the first images of each class."
)
_MEMORY = flags.DEFINE_string("memory", None, "Instead of the preset's.")
_CODEC = flags.DEFINE_string("codec", None, "Instead of the preset's.")


def settings_from_flags() -> Settings:
  """What all forms share."""
  quick = _QUICK.value
  dataset = "digits" if quick else _DATASET.value
  common = dict(presets.of(dataset)["smoke" if quick else _PRESET.value])
  common |= dict(method=_METHOD.value, tuning_fraction=0.1, rehearsal="once")
  given = dict(
    memory=_MEMORY.value,
    codec=_CODEC.value,
    images_per_class=_IMAGES.value,
  )
  common |= {name: value for name, value in given.items() if value}
  return Settings(dataset, _PRESET.value, **common)


def main(_):
  settings = settings_from_flags()
  dataset = settings.dataset
  loaded = data.load(dataset, _DATA_DIR.value)
  found: dict[str, list[dict[str, float]]] = {}
  results = measure.Results("replay", _OUTPUT.value, _QUICK.value)
  first, seeds = _FORMS.value[0], list(map(int, _SEEDS.value))
  for number, seed in enumerate(seeds, 1):
    base = _base_model(settings, loaded, seed)
    for form in _FORMS.value:
      found.setdefault(form, []).append(
        after_a_next_phase(settings, loaded, seed, form, base)
      )
      print(f"seed {seed}, {form}: {found[form][-1]}", flush=True)
    results.add(  # After each seed: the next one may not survive.
      f"{dataset}_{_PRESET.value}_{_METHOD.value}",
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


if __name__ == "__main__":
  jax.config.parse_flags_with_absl()
  app.run(main)
