"""The flags that experiments share, and the settings they give.

A flag that is not given takes the value of the preset.
"""

from typing import Any

from absl import flags

from experiments import flags as flags_lib
from experiments import launch
from mnemonics_jax import data, registry
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import Command, Settings, declared, resolve

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(launch)

_OPTIONS = {o for source in data.SOURCES.values() for o in source.options}
flags_lib.define(
  FLAGS, Settings, leave_out={"preset", "phases", "data", *_OPTIONS}
)
flags_lib.define(
  FLAGS,
  Command,
  defaults=True,
  leave_out={"devices", "coordinator", "process_id", "num_processes"},
)
for _name in [*FLAGS]:  # They are this module's.
  if _name in {
    field.name for field in (*declared(Settings), *declared(Command))
  }:
    FLAGS.register_flag_by_module(__name__, FLAGS[_name])
    flags.declare_key_flag(_name)
flags.DEFINE_list(
  "phases",
  None,
  "Number of phases after the first; the other classes are spread evenly over them."
  " A table takes several, such as 5,10,25; a run takes one.",
)
flags.DEFINE_enum(
  "preset",
  "short",
  list(registry.PRESETS),
  f"{registry.choices(registry.PRESETS)}. paper has the paper's stages (--adjust,"
  " --transfer, --finetune), too, with --exemplars=mnemonics. Single flags"
  " override the preset.",
)


def given_settings() -> dict[str, Any]:
  """The settings for which a flag was given; phases and seeds as tuples."""
  found = flags_lib.given(FLAGS, Settings)
  found.pop("preset", None)
  found.pop("dataset", None)
  return found


def settings_from_flags(dataset: str) -> Settings:
  """The preset of a data set, overridden by every flag that was given."""
  given = given_settings()
  if "phases" in given:
    if len(given["phases"]) != 1:
      raise UserError(
        "phases",
        f"`phases={','.join(map(str, given['phases']))}` is not one number, which"
        " a run takes",
        "write `phases=5`",
      )
    (given["phases"],) = given["phases"]
  return resolve(dataset, FLAGS.preset, given)
