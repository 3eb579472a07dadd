"""`--help` shows each flag under its purpose, with the value that it has."""

import importlib

import pytest
from support import command

from experiments import flags as flags_lib
from experiments.__main__ import LEARNING


def text_of(name, *given, cwd):
  return command.call(name, "--help", *given, cwd=cwd).out


@pytest.mark.parametrize("name", LEARNING)
def test_every_shared_flag_has_a_purpose(name):
  flags = importlib.import_module(f"experiments.{name}").FLAGS
  groups = flags_lib._by_purpose(flags)
  listed = [flag for names in groups.values() for flag in names]
  assert sorted(listed) == sorted(flags)
  own = {
    "imagenet": ["full", "subset"],
    "folder": ["class_names", "name"],
  }
  assert groups.get("This command", []) == own.get(name, [])


def test_defaults_are_those_of_the_preset(tmp_path):
  for preset, epochs in (("smoke", 2), ("paper", 160)):
    text = text_of("digits", f"--preset={preset}", cwd=tmp_path)
    assert f"\n  --epochs={epochs}\n" in text
    assert f"\n  --preset={preset}\n" in text
  # A mistake elsewhere does not hide them, and `learn` asks which data.
  text = text_of(
    *("learn", "--dataset=cifar100", "--preset=fast", "--epochs=x"),
    cwd=tmp_path,
  )
  assert "\n  --base_epochs=40\n" in text


@pytest.mark.parametrize(
  "given, adjust, transfer, finetune",
  [
    ((), "on", "in_out", "all"),
    (("--exemplars=herding",), "off", "none", "none"),
    # The last one is the method's.
    (("--exemplars=herding", "--method=e2e"), "off", "none", "all"),
  ],
)
def test_defaults_are_those_beside_what_is_given(
  tmp_path, given, adjust, transfer, finetune
):
  """As a run with these flags would have them."""
  text = text_of("digits", "--preset=paper", *given, cwd=tmp_path)
  for line in (
    f"--[no]adjust ({adjust})",
    f"--transfer={transfer}",
    f"--finetune={finetune}",
    *given,
  ):
    assert f"\n  {line}\n" in text, line


def test_help_teaches_what_the_registry_knows(tmp_path):
  text = " ".join(text_of("digits", cwd=tmp_path).split())
  for part in (
    "joint (head): the upper bound",
    "mnemonics: learned by bilevel optimisation",
    "per_class:20",
    "λ_base of LUCIR",
  ):
    assert part in text
