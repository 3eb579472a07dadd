"""What changes nothing has no part in the identity of a run, and is refused."""

import dataclasses

import pytest

from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import Settings

PLAIN = Settings(
  "tiny", "short", net="resnet8", memory="per_class:2", base_classes=3, phases=3
)
HERDING = dataclasses.replace(PLAIN, exemplars="herding")
ADJUSTED = dataclasses.replace(HERDING, adjust=True)
CODED = dataclasses.replace(HERDING, codec="jpeg:75")
JOINT = dataclasses.replace(HERDING, method="joint")


@pytest.mark.parametrize(
  "settings, idle, matters",
  [
    (HERDING, dict(recipe="paper", validate_on="new"), dict(epochs=3)),
    (HERDING, dict(init_exemplars="random", max_change=9), dict(adjust=True)),
    (HERDING, dict(adjust_parts=3), dict(finetune="all")),
    (HERDING, dict(code_new=True), dict(codec="jpeg:75")),
    (CODED, dict(max_change=3), dict(code_new=True)),
    (ADJUSTED, dict(validate_on="new"), dict(recipe="paper")),
    (ADJUSTED, dict(finetune_epochs=3), dict(adjust_parts=3)),
    (PLAIN, dict(adjust_parts=3), dict(meta_epochs=3)),
    (JOINT, dict(adjust=True, adjust_parts=3), dict(epochs=3)),
    (JOINT, dict(finetune="all", finetune_epochs=3), dict(seeds=(1,))),
    (JOINT, dict(transfer="out", reference_code=True), dict(net="resnet32")),
    (JOINT, dict(less_forget=1.0), dict(exemplars="random")),
  ],
)
def test_what_changes_nothing_changes_no_identity(settings, idle, matters):
  same = dataclasses.replace(settings, **idle)
  assert same.identity() == settings.identity()
  other = dataclasses.replace(settings, **matters)
  assert other.identity() != settings.identity()
  # And nobody may ask for it.
  for name in idle:
    with pytest.raises(UserError, match=f"`{name}` has no effect with"):
      same.refuse_idle([name])
  other.refuse_idle(matters)


@pytest.mark.parametrize(
  "dataset, idle",
  [
    ("digits", {"image_size", "val_fraction"}),
    ("imagenet", {"val_fraction"}),
    ("folder", set()),
    ("my pets", set()),  # Whose reader nobody knows here.
  ],
)
def test_options_of_other_data_sets_are_refused(dataset, idle):
  settings = dataclasses.replace(
    PLAIN, dataset=dataset, image_size=32, val_fraction=0.5
  )
  for name in ("image_size", "val_fraction"):
    if name not in idle:
      settings.refuse_idle([name])
      continue
    with pytest.raises(UserError, match=f"`{name}` has no effect with"):
      settings.refuse_idle([name])


def test_what_is_switched_off_may_be_said():
  JOINT.refuse_idle(["adjust", "finetune", "transfer", "reference_code"])
  HERDING.refuse_idle(["drift", "imitate"])


@pytest.mark.parametrize(
  "changes, given",
  [
    (dict(method="joint", adjust=True), "adjust"),
    (dict(method="joint", finetune="head"), "finetune"),
    (dict(method="joint", codec="jpeg:75", code_new=True), "code_new"),
    (dict(code_new=True), "code_new"),
    (dict(method="joint", reference_code=True), "reference_code"),
    (dict(exemplars="herding"), "max_change"),
    (dict(exemplars="herding", max_change=0), "max_change"),
    (dict(exemplars="herding", drift=2), "drift"),
    (dict(exemplars="herding", imitate=True), "imitate"),
    (dict(exemplars="herding", adjust=True), "init_exemplars"),
    (dict(exemplars="herding", adjust=True), "validate_on"),
    (dict(adjust=False), "adjust_parts"),
    (dict(finetune="none"), "finetune_epochs"),
    (dict(method="lwf"), "less_forget"),
    (dict(distill=False), "less_forget"),
  ],
)
def test_what_would_change_nothing_is_refused(changes, given):
  settings = dataclasses.replace(PLAIN, **changes)
  with pytest.raises(UserError, match=f"`{given}` has no effect with ."):
    settings.refuse_idle({given})
  settings.refuse_idle(set())


def test_what_has_an_effect_is_accepted():
  adjusted = dataclasses.replace(PLAIN, exemplars="herding", adjust=True)
  adjusted.refuse_idle({"max_change", "recipe", "less_forget"})
  dataclasses.replace(PLAIN, finetune="all").refuse_idle({"finetune_epochs"})
