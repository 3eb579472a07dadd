"""`--help`: what a command does, and its flags by purpose.

A flag is shown with the value that it has if it is not given: that of the chosen
preset, beside those that are given.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import shutil
import textwrap
from typing import Any

from absl import flags

from mnemonics_jax.settings import Settings

# What a preset says beside settings that are given, such as `presets.values`.
PresetValues = Callable[[str, Mapping[str, Any]], dict[str, Any]]

# Flags by purpose; those of one command alone come last, under its own name.
GROUPS: dict[str, tuple[str, ...]] = {
  "Classes and phases": (
    "phases",
    "base_classes",
    "classes",
    "order_seed",
    "seeds",
    "images_per_class",
    "tuning_fraction",
  ),
  "Method": (
    "method",
    "transfer",
    "finetune",
    "distill",
    "less_forget",
    "reference_code",
  ),
  "Exemplars and memory": (
    "exemplars",
    "memory",
    "codec",
    "code_new",
    "rehearsal",
    "init_exemplars",
    "adjust",
    "adjust_parts",
    "recipe",
    "scope",
    "validate_on",
    "max_change",
    "frequencies",
    "drift",
    "imitate",
    "meta_epochs",
    "augment_exemplars",
    "exemplar_chunk",
  ),
  "Training": (
    "preset",
    "net",
    "augment",
    "epochs",
    "base_epochs",
    "batch_size",
    "learning_rate",
    "base_learning_rate",
    "curve",
    "weight_decay",
    "finetune_epochs",
    "finetune_learning_rate",
    "dtype",
    "remat",
  ),
  "Files": (
    "workdir",
    "fresh",
    "checkpoint_every",
    "keep",
    "patience",
    "base_models",
    "base_model",
    "tensorboard",
    "report_every_phase",
  ),
  "Machines": (
    "stream",
    "devices",
    "coordinator",
    "process_id",
    "num_processes",
  ),
}
_COMMAND = "This command"
_INDENT = " " * 4


def asked(arguments: Iterable[str]) -> bool:
  """Whether the command line asks for help."""
  return any(
    one in ("-h", "-help", "--help", "--helpfull") for one in arguments
  )


def text(
  doc: str,
  shown: Sequence[flags.Flag],
  preset_values: PresetValues | None,
  width: int | None = None,
) -> str:
  """What `--help` prints.

  Args:
    doc: what the command says of itself.
    shown: its flags.
    preset_values: what its presets say, if it has any.
    width: of a line; by default the terminal's.
  """
  width = width or min(shutil.get_terminal_size().columns, 100)
  by_name = {flag.name: flag for flag in shown}
  known = {name for names in GROUPS.values() for name in names}
  groups = {_COMMAND: [name for name in sorted(by_name) if name not in known]}
  groups |= {
    title: [name for name in names if name in by_name]
    for title, names in GROUPS.items()
  }
  values = _values(shown, preset_values)
  parts = [doc.strip()]
  for title, names in groups.items():
    if names:
      entries = [_entry(by_name[name], values, width) for name in names]
      parts.append("\n".join([f"{title}:", *entries]))
  return "\n\n".join(parts) + "\n"


def _values(shown, preset_values):
  """What settings are if no flag gives them."""
  if preset_values is None:
    return {}
  defaults = {
    field.name: field.default
    for field in dataclasses.fields(Settings)
    if field.default is not dataclasses.MISSING
  }
  given = {flag.name: flag.value for flag in shown if flag.value is not None}
  return defaults | preset_values(flags.FLAGS.preset, given)


def _entry(flag, values, width):
  value = flag.value if flag.value is not None else values.get(flag.name)
  name = f"--{flag.name}"
  if flag.boolean:
    state = {True: " (on)", False: " (off)"}.get(value, "")
    name = f"--[no]{flag.name}{state}"
  elif value is not None:
    name += f"={_written(value)}"
  help_text = " ".join((flag.help or "").split())
  lines = textwrap.wrap(
    help_text, width, initial_indent=_INDENT, subsequent_indent=_INDENT
  )
  return "\n".join([f"  {name}", *lines])


def _written(value):
  if isinstance(value, (tuple, list)):
    return ",".join(map(str, value))
  return f"{value:g}" if isinstance(value, float) else str(value)
