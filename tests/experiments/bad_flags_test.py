"""Flags of every command, given wrongly.

Each mistake gets one sentence that names the flag, exit code 2, and leaves nothing
behind. `contracts/settings_test.py` has what a declaration refuses.
"""

import copy
import importlib
import os
from pathlib import Path
import subprocess
import sys

import pytest
from support import (
  command,
  data_files,
  imagenet,
  report_fixture,
  saved_learner,
  tiny,
)

from experiments import flags as flags_lib
from experiments.__main__ import EXPERIMENTS
from experiments.tables.plan import define_flags
from mnemonics_jax.data.imagenet import imagenet_subset
from mnemonics_jax.data.prepare import prepare_imagenet
from mnemonics_jax.errors import UserError

LONG = "x" * 300

# A mistake is a command line. The directory it runs in has the files that `place`
# makes. Values that no declaration allows are generated; here are those that only
# the data, the machine or the disk refuse.
COMMON = {
  "memory": [
    "per_class:1000", "total:1", "total:99999999", "per_class:3 --images_per_class=2",
    "per_class:1 --adjust", "per_class:1 --method=bic",
    "per_class:2 --adjust --adjust_parts=3", "per_class_bytes:9",
    "total_bytes:700 --codec=jpeg:75",  # Of which headers take most.
  ],
  "codec": ["webp --exemplars=mnemonics"],
  "drift": ["2 --imitate"],
  "phases": ["99"],
  "base_classes": ["1000"],
  "classes": ["1000"],
  "checkpoint_every": ["-1", "nan"],
  "keep": ["0"],
  "patience": ["-1"],
  "workdir": ["a_file", "a_file/below", "full", "damaged", LONG],
  "base_models": ["a_file", "a_file/below", LONG],
  "base_model": ["a_file", "nowhere", LONG],
  "devices": ["0", "-1", "many", "1.5", "99", "1 --coordinator=localhost:1234"],
  "coordinator": [
    "nowhere", "host:port", ":80", "localhost:1234",
    "localhost:1234 --process_id=2 --num_processes=2",
  ],
  "process_id": ["0", "0 --coordinator=auto"],
  "num_processes": ["2", "2 --coordinator=auto"],
}  # fmt: skip
SPECIFIC: dict[str, dict[str, list[str]]] = {
  "cifar": {
    "data_dir": ["nowhere", "a_file", "full", "cut.tar.gz"],
    "download": ["true --data_dir=a_file"],
  },
  "imagenet": {
    "subset": ["true --full"],
    "full": ["true --subset"],
    "data_dir": ["nowhere", "a_file", "full", "cut.tar.gz", "interrupted"],
    "image_size": ["0", "-5", "1000000"],
    "decoder": ["cv2", "pillow,simplejpeg"],
    "workers": ["-1", "99999"],
  },
  "folder": {
    "data": ["nowhere", "a_file", "full", LONG],
    "image_size": ["0", "-5", "1000000"],
    "val_fraction": ["0", "1", "nan", "-0.5"],
    "strict": ["true --data=unreadable"],
    "class_names": ["nowhere", "full", "a_file"],
  },
  "predict": {
    "top": ["0", "-1"],
    "csv": ["full", "a_file/below"],
    "confusion": ["full", "a_file/below"],
    "seed": ["9"],
    "phase": ["9"],
    "network": ["resnet8", "no_module:Net", "os:path"],
  },
  "export": {"to": ["a_file", "full"]},
  "report": {"output": ["run/results.json", "a_file/page.html", "pipe.html", LONG]},
  "learn": {"dataset": ["folder"]},
  "tables": {
    "table": ["1,2"],
    "dataset": ["folder"],
    "rows": ["best", "herding,best"],
    "plan": ["none.yaml", "."],
    "memory": ["per_class:1000", "total:99999999"],
    "phases": ["99", "two", "5,5"],
    "seeds": ["1,1"],
    "root": ["a_file", "a_file/below"],
  },
}  # fmt: skip
# What goes with a mistake so that there is no other.
VALID = {
  "cifar": ["--memory=per_class:2"],
  "imagenet": ["--subset", "--data_dir=prepared", "--phases=1", "--workers=0"],
  "folder": ["--data=images", "--phases=1", "--memory=per_class:2"],
  "report": ["run"],
  "predict": ["learner", "images"],
  "export": ["learner", "--to=new"],
  "tables": ["--table=2", "--rows=mnemonics_adjust"],
}


def flags_of(experiment):
  if experiment == "tables":
    return define_flags()
  return importlib.import_module(f"experiments.{experiment}").FLAGS


# `digits` makes those that every experiment could make.
CASES = [
  (experiment, flag, value)
  for experiment in EXPERIMENTS
  for flag, values in {
    **(COMMON if experiment == "digits" else {}),
    **SPECIFIC.get(experiment, {}),
  }.items()
  for value in values
]
CASES += [
  (experiment, flag, value)
  for experiment in ("cifar", "folder")
  for flag, value in (
    ("memory", "per_class:2000"), ("phases", "1999"), ("workdir", "full")
  )
]  # fmt: skip
# Texts that are no value of a flag of this type.
WRONG = {"bool": ["maybe", "2"], "int": ["many", "1.5"], "float": ["many"]}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_flag_of_every_command_refuses_values_of_another_kind(experiment):
  for name in flags_of(experiment):
    kind = flags_of(experiment)[name].flag_type()
    wrong = WRONG.get(kind, ["magic"] if "enum" in kind else [])
    for text in wrong if "list" in kind else ["", *wrong]:
      with pytest.raises(UserError) as refused:
        values = copy.deepcopy(flags_of(experiment))
        flags_lib.parse(values, ["command", f"--{name}={text}"])
      assert refused.value.field == name
      assert f"--{name}" in str(refused.value) and refused.value.fix


@pytest.fixture(scope="module")
def place(tmp_path_factory):
  root = tmp_path_factory.mktemp("place")
  (root / "a_file").write_text("precious")
  os.mkfifo(root / "pipe.html")
  (root / "full").mkdir()
  (root / "full/precious").write_text("precious")
  (root / "damaged").mkdir()
  (root / "damaged/config.json").write_text("{")
  (root / "cut.tar.gz").write_bytes(b"\x1f\x8b\x08\0cut")
  data_files.write_folder(root / "images")
  photographs = imagenet.folder(root / "photographs")
  subset = imagenet_subset()
  prepare_imagenet(subset, photographs, root / "prepared", reduced=True)
  (root / "interrupted/imagenet").mkdir(parents=True)
  (root / "interrupted/imagenet/shards.jsonl").touch()
  data_files.write_folder(root / "unreadable")
  (root / "unreadable/train/cat/text.png").write_text("no image")
  report_fixture.write(root / "run", groups=(1, 1), seeds=(0,))
  saved_learner.write(root / "learner")
  return root


@pytest.fixture(autouse=True)
def small_cifar(monkeypatch):
  """CIFAR-100 is there unless --data_dir says otherwise."""
  from mnemonics_jax.data import cifar100

  load, small = cifar100.load, tiny.dataset(classes=100, train=6, test=1)
  monkeypatch.setattr(
    cifar100,
    "load",
    lambda data_dir, **options: (
      load(data_dir, **options) if data_dir else small
    ),
  )


@pytest.mark.parametrize("experiment, flag, value", CASES)
def test_mistakes_get_one_sentence_and_exit_code_2(
  place, experiment, flag, value
):
  first, *others = value.split(" ")
  outcome = command.call(
    experiment, *VALID.get(experiment, []), f"--{flag}={first}", *others,
    cwd=place,
  )  # fmt: skip
  command.assert_refused(outcome, f"--{flag}")
  # A missing data set and a list of unreadable files take more than a line.
  if flag not in ("data_dir", "strict"):
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize(
  "arguments, part",
  [
    (["experiments.digits", "--phases=-1"], "--phases=-1"),
    pytest.param(
      ["experiments.folder", "--data=nowhere"],
      "--data=nowhere",
      marks=pytest.mark.slow,
    ),
    (["experiments.report", "nowhere"], "nowhere"),
    (["experiments", "mnist"], "digits|cifar|imagenet|folder"),
  ],
)
def test_in_a_process_of_its_own(tmp_path, arguments, part):
  root = Path(__file__).parents[2]
  done = subprocess.run(
    [sys.executable, "-m", *arguments],
    cwd=tmp_path,
    env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(root)},
    capture_output=True,
    text=True,
  )  # fmt: skip
  assert done.returncode == 2
  assert part in done.stderr and "Traceback" not in done.stderr
  # Hidden are the caches of libraries, matplotlib's fonts for one.
  assert not [path for path in tmp_path.iterdir() if path.name[0] != "."]


def test_the_same_commands_without_mistakes_are_accepted(place, tmp_path):
  for experiment in ("digits", "cifar", "imagenet", "folder"):
    data = {
      "folder": [f"--data={place / 'images'}", "--base_classes=1"],
      "imagenet": ["--subset", f"--data_dir={place / 'prepared'}"],
    }
    with pytest.raises(command.Accepted):
      command.call(
        experiment, "--phases=1", "--memory=per_class:2", "--finetune=head",
        "--finetune_epochs=3", "--adjust", "--exemplars=herding",
        "--max_change=255", "--base_models=models", *data.get(experiment, []),
        cwd=tmp_path,
      )  # fmt: skip
