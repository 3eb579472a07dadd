"""Every command explains itself, and is written down as it can be typed."""

import importlib
import json
import os
from pathlib import Path
import re
import shlex
import subprocess
import sys

from absl import flags
import pytest
from support import native_cache

from experiments import help as help_lib
from experiments import launch, options
from experiments.__main__ import EXPERIMENTS, LEARNING
from mnemonics_jax import registry

ROOT = Path(__file__).parents[2]
DOORS = {
  "module": lambda name: ["-m", f"experiments.{name}"],
  # What the console script `mnemonics-jax` does.
  "script": lambda name: [
    "-c",
    "import sys; sys.argv[0] = 'mnemonics-jax';"
    " from experiments.__main__ import main; main()",
    name,
  ],
}
FLAGS = {
  "digits": {"method", "less_forget", "workdir", "devices"},
  "cifar": {"method", "data_dir", "download"},
  "imagenet": {"method", "subset", "full", "data_dir", "workers", "decoder"},
  "folder": {"method", "data", "image_size"},
  "learn": {"method", "dataset", "data_dir", "download"},
  "tables": {"table", "dataset", "rows", "root", "epochs", "data_dir"},
  "report": {"output"},
  "predict": {"top", "csv", "confusion", "seed", "phase"},
  "export": {"to", "seed", "phase"},
  "publish": set(),
  "extend": {"data", "workdir", "phases", "val_fraction", "checkpoint_every"},
  "cache": {"clear"},
}
OTHERS = {
  "digits": {"data_dir", "table", "output"},
  "cifar": {"image_size", "table", "output"},
  "imagenet": {"data", "download", "dataset", "table"},
  "folder": {"data_dir", "table", "output"},
  "learn": {"data", "strict", "table", "output"},
  # Its rows or --root decide these.
  "tables": {"workdir", "fresh", "method", "exemplars", "output"},
  "report": {"method", "workdir", "devices"},
  "predict": {"method", "workdir", "to"},
  "export": {"method", "workdir", "top"},
  "publish": {"method", "workdir", "to"},
  "extend": {"method", "epochs", "coordinator", "seed", "to"},
  "cache": {"method", "workdir", "devices"},
}


def call(door, name, *flags, cwd):
  native_cache.share(cwd / ".cache")
  return subprocess.run(
    [sys.executable, *DOORS[door](name), *flags],
    cwd=cwd,
    env=os.environ | {"HOME": str(cwd), "PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("door", DOORS)
def test_help_shows_the_commands_words_and_flags(tmp_path, door, name):
  done = call(door, name, "--help", cwd=tmp_path)
  doc = importlib.import_module(f"experiments.{name}").__doc__ or ""
  assert f"python -m experiments.{name}" in doc
  for line in filter(None, map(str.strip, doc.splitlines())):
    assert line in done.stdout, done.stderr
  assert done.returncode == 0
  shown = set(re.findall(r"^  --(?:\[no\]|no)?(\w+)", done.stdout, re.M))
  assert FLAGS[name] <= shown and not OTHERS[name] & shown


@pytest.mark.parametrize("name", LEARNING)
def test_every_shared_flag_has_a_purpose(name):
  """And every purpose has a flag."""
  module = importlib.import_module(f"experiments.{name}")
  shared = {
    flag.name for flag in flags.FLAGS.get_key_flags_for_module(options)
  } | {flag.name for flag in flags.FLAGS.get_key_flags_for_module(launch)}
  listed = [flag for names in help_lib.GROUPS.values() for flag in names]
  assert len(listed) == len(set(listed)) and set(listed) == shared
  assert all(module.preset_values(preset, {}) for preset in registry.PRESETS)


def test_defaults_are_those_of_the_preset(tmp_path):
  for preset, epochs in (("smoke", 2), ("paper", 160)):
    done = call("module", "digits", "-h", f"--preset={preset}", cwd=tmp_path)
    assert done.returncode == 0
    assert f"\n  --epochs={epochs}\n" in done.stdout
    assert f"\n  --preset={preset}\n" in done.stdout


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
  flags = ("-h", "--preset=paper", *given)
  done = call("module", "digits", *flags, cwd=tmp_path)
  for line in (
    f"--[no]adjust ({adjust})",
    f"--transfer={transfer}",
    f"--finetune={finetune}",
    *given,
  ):
    assert f"\n  {line}\n" in done.stdout, line


def test_help_survives_a_reader_who_leaves(tmp_path):
  module = f"{sys.executable} -m experiments.digits --help | head -1"
  done = subprocess.run(
    module, shell=True, cwd=ROOT, capture_output=True, text=True
  )
  assert done.stdout.startswith("Class-incremental") and not done.stderr


def test_a_mistyped_command_is_answered_with_the_nearest(tmp_path):
  done = call("script", "cifr", cwd=tmp_path)
  assert done.returncode == 2
  assert "there is no command 'cifr'; did you mean cifar?" in done.stderr


def test_help_teaches_what_the_registry_knows(tmp_path):
  text = " ".join(
    call("module", "digits", "--help", cwd=tmp_path).stdout.split()
  )
  for part in (
    "joint (head): the upper bound",
    "mnemonics: learned by bilevel optimisation",
    "per_class:20",
    "λ_base of LUCIR",
  ):
    assert part in text


@pytest.mark.parametrize(
  "door", ["module", pytest.param("script", marks=pytest.mark.slow)]
)
def test_the_command_of_a_run_can_be_typed_again(tmp_path, door):
  """Whatever ends it: the directory is claimed before anything is trained."""
  flags = (
    "--learning_rate=1e30", "--preset=smoke", "--images_per_class=8",
    "--base_classes=2", "--phases=1", "--memory=per_class:2",
    "--exemplars=herding", "--batch_size=16", "--base_epochs=1",
    "--notensorboard", "--net=resnet8",
  )  # fmt: skip
  done = call(door, "digits", *flags, "--workdir=a b", cwd=tmp_path)
  assert done.returncode == 2, done.stderr
  config = json.loads((tmp_path / "a b" / "config.json").read_text())
  assert shlex.split(config["command"]) == [
    "python", "-m", "experiments.digits", *flags, "--workdir=a b",
  ]  # fmt: skip
  again = subprocess.run(
    [sys.executable, *shlex.split(config["command"])[1:]],
    cwd=tmp_path,
    env=os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )
  assert (again.returncode, again.stderr) == (2, done.stderr)


TABLE = """
import sys
from experiments import command, running
def stop(*_, **__):
  raise SystemExit(7)
running.run = stop
sys.argv = ["{script}", *sys.argv[1:]]
{door}
"""
ENTER = {
  "module": "import runpy; runpy.run_module('experiments.tables',"
  " run_name='__main__', alter_sys=True)",
  "script": "from experiments.__main__ import main; sys.argv.insert(1,"
  " 'tables'); main()",
}


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_the_command_of_a_table_can_be_typed_again(tmp_path, door):
  flags = ["--table=2", "--rows=herding", "--phases=1"]
  code = TABLE.format(script=door, door=ENTER[door])
  done = subprocess.run(
    [sys.executable, "-c", code, *flags],
    cwd=tmp_path,
    env=os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 7, done.stderr
  (path,) = (tmp_path / "runs" / "tables").glob("*.json")
  expected = shlex.join(["python", "-m", "experiments.tables", *flags])
  assert json.loads(path.read_text())["commands"] == [expected]
