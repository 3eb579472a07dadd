"""Which settings change nothing beside others, and that they are not asked for."""

from collections.abc import Container
from typing import TYPE_CHECKING

from mnemonics_jax import data
from mnemonics_jax.errors import UserError

if TYPE_CHECKING:
  from experiments.settings import Settings


def check_effect(settings: "Settings", given: Container[str]) -> None:
  """Refuses settings that were asked for but would change nothing.

  Args:
    settings: of a run.
    given: names of the settings that the user has chosen.
  """
  for name, other in without_effect(settings).items():
    # What is switched off is only redundant.
    if name in given and not (name in _SWITCHES and _off(settings, name)):
      raise UserError(
        name,
        f"`{name}` has no effect with {other}",
        "leave out one of them",
      )


# What joint training leaves out.
_STAGES = (
  "adjust",
  "code_new",
  "finetune",
  "transfer",
  "reference_code",
  "rehearsal",
)
# Those that have a value for off.
_SWITCHES = (*_STAGES, "drift", "imitate")
# Settings that only matter when exemplars are learned, or with a fine-tune.
_LEARNING = (
  "augment_exemplars",
  "exemplar_chunk",
  "max_change",
  "frequencies",
  "meta_epochs",
  "recipe",
  "scope",
)
_FINETUNING = ("finetune_epochs", "finetune_learning_rate")
# How images are read, which some data sets leave to the user.
READING = ("image_size", "val_fraction")


def _off(settings, name):
  return getattr(settings, name) in (False, "none", "once")  # Or 0.


def without_effect(settings: "Settings") -> dict[str, str]:
  """Names of settings that change nothing, and because of what."""
  joint = "`method=joint`, which sees all data again,"
  is_joint = settings.method == "joint"
  chosen = f"`exemplars={settings.exemplars}`"
  learned = settings.exemplars == "mnemonics"
  adjusted = settings.adjust and not is_joint
  found: dict[str, str] = {}
  if source := data.SOURCES.get(settings.dataset):
    idle = [name for name in READING if name not in source.options]
    found |= dict.fromkeys(idle, source.title)
  if settings.codec == "raw":
    found["code_new"] = "`codec=raw`"
  if is_joint:
    found |= dict.fromkeys(_STAGES, joint)
  if not (learned or adjusted):
    idle = set(_LEARNING)
    if settings.exemplars == "selected":
      idle -= {"meta_epochs", "recipe"}  # How long scores are learned.
    found |= dict.fromkeys(sorted(idle), f"{chosen} and --noadjust")
  if not learned:
    only_new = ("init_exemplars", "validate_on", "drift", "imitate")
    found |= dict.fromkeys(only_new, chosen)
  if settings.base_model is not None:
    found |= dict.fromkeys(
      ("base_epochs", "base_learning_rate"), "`base_model`"
    )
  if not adjusted:
    found["adjust_parts"] = joint if settings.adjust else "--noadjust"
  if is_joint or _off(settings, "finetune"):
    other = "`finetune=none`" if _off(settings, "finetune") else joint
    found |= dict.fromkeys(_FINETUNING, other)
  if not settings.forgets_less:
    other = "`method=lucir` --nodistill"
    if settings.method != "lucir":
      other = f"`method={settings.method}`"
    found["less_forget"] = other
  return found
