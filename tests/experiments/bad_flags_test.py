"""Every flag of every experiment, given wrongly.

Each mistake gets one sentence that names the flag, exit code 2, and leaves
nothing behind. A new flag needs an entry here.
"""

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

from experiments.__main__ import EXPERIMENTS, WITH_ARGUMENTS
from experiments.tables.request import define_flags
from mnemonics_jax.data.imagenet import imagenet_subset
from mnemonics_jax.data.prepare import prepare_imagenet

LONG = "x" * 300

# A mistake is a command line; those in COMMON are made with every experiment
# that trains. The directory it runs in has the files that `place` makes.
COMMON = {
  "method": ["magic", "", "lucir,bic", "joint --adjust"],
  "exemplars": ["best", "", "random,herding"],
  "init_exemplars": ["mnemonics", "", "best", "random --exemplars=herding"],
  "adjust": ["maybe", "2", "", "true --method=joint"],
  "adjust_parts": ["1", "0", "half", "", "2 --noadjust"],
  "validate_on": ["old", "", "new,all", "new --exemplars=herding --adjust"],
  "recipe": ["short", "", "tuned,paper", "paper --exemplars=random"],
  "scope": ["none", "", "body", "all --exemplars=herding --noadjust"],
  "max_change": ["-1", "256", "1.5", "many", "2 --exemplars=random"],
  "frequencies": ["0", "16", "-1", "low", "3 --exemplars=herding"],
  "drift": ["-1", "some", "1.5", "2 --imitate", "2 --exemplars=herding"],
  "imitate": ["maybe", "2", "", "true --exemplars=herding"],
  "meta_epochs": ["0", "-1", "1e3", "9999999", "3 --exemplars=herding"],
  "augment_exemplars": ["maybe", "2", "", "true --exemplars=random"],
  "memory": [
    "lots", "", "20", "per_class", "per_class:0", "per_class:-5",
    "per_class:--5", "per_class:1000", "per_class:1.5", "total:1",
    "total:99999999", "per_class:3 --images_per_class=2",
    "per_class:1 --adjust", "per_class:1 --method=bic",
    "per_class:2 --adjust --adjust_parts=3", "per_class_bytes:0",
    "per_class_bytes:", "total_bytes:-1", "per_class_bytes:9",
    "total_bytes:700 --codec=jpeg:75",  # Of which headers take most.
  ],
  "rehearsal": ["twice", "", "0", "-1", "1.5", "balanced --method=joint"],
  "codec": ["png", "", "jpeg:0", "jpeg:101", "raw:5", "webp --exemplars=mnemonics"],
  "code_new": ["maybe", "2", "", "true --codec=raw"],
  "transfer": ["in", "", "in_out,out", "out --method=joint"],
  "finetune": ["body", "", "head,all", "head --method=joint"],
  "distill": ["maybe", "", "2"],
  "less_forget": ["-1", "nan", "inf", "some", "5 --method=lwf", "5 --nodistill"],
  "reference_code": ["maybe", "2", "", "true --method=joint"],
  "phases": ["-1", "two", "2.5", "5,10", "", "99"],
  "base_classes": ["-1", "1000", "half", "1.5"],
  "classes": ["0", "-1", "1000", "all", "1.5"],
  "order_seed": ["-1", "4294967296", "random"],
  "seeds": ["", "a,b", "1,1", "-1", "1.5", "0,,1", "4294967296"],
  "preset": ["long", "", "paper,short"],
  "net": ["resnet50", "", "resnet8,resnet32"],
  "augment": ["mirror", "", "crop,flip"],
  "epochs": ["0", "-3", "few", "1.5", "99999999999999999999"],
  "base_epochs": ["0", "-3", "few", "99999999"],
  "batch_size": ["0", "-1", "64.0", "100000000"],
  "learning_rate": ["0", "-1", "nan", "inf", "fast"],
  "base_learning_rate": ["0", "-1", "nan", "inf", "fast"],
  "curve": ["linear", "", "steps,cosine"],
  "tuning_fraction": ["0", "1", "nan", "-0.1", "some"],
  "weight_decay": ["-1", "nan", "inf", "none"],
  "finetune_epochs": ["0", "x", "99999999", "3 --finetune=none"],
  "finetune_learning_rate": ["0", "nan", "x", "0.1 --finetune=none"],
  "images_per_class": ["0", "-1", "all"],
  "checkpoint_every": ["-1", "nan", "inf", "often"],
  "keep": ["0", "-1", "all", "1.5"],
  "patience": ["-1", "nan", "inf", "much"],
  "workdir": ["", "a_file", "a_file/below", "full", "damaged", LONG],
  "fresh": ["maybe", "2", ""],
  "base_models": ["", "a_file", "a_file/below", LONG],
  "base_model": ["", "a_file", "nowhere", LONG],
  "tensorboard": ["maybe", "2", ""],
  "report_every_phase": ["maybe", "2", ""],
  "exemplar_chunk": ["0", "-1", "all", "1.5", "2 --exemplars=random"],
  "dtype": ["float16", "", "float32,bfloat16"],
  "stream": ["sometimes", "", "true"],
  "remat": ["maybe", "2", ""],
  "devices": [
    "0", "-1", "many", "1.5", "", "99", "1 --coordinator=localhost:1234",
  ],
  "coordinator": [
    "", "nowhere", "host:port", ":80", "localhost:1234",
    "localhost:1234 --process_id=2 --num_processes=2",
  ],
  "process_id": ["0", "one", "1.5", "0 --coordinator=auto"],
  "num_processes": ["2", "two", "1.5", "2 --coordinator=auto"],
}  # fmt: skip
SPECIFIC = {
  "cifar": {
    "data_dir": ["nowhere", "a_file", "full", "cut.tar.gz", ""],
    "download": ["maybe", "2", "true --data_dir=a_file"],
  },
  "imagenet": {
    "subset": ["maybe", "", "true --full"],
    "full": ["maybe", "", "true --subset"],
    "data_dir": ["nowhere", "a_file", "full", "cut.tar.gz", "interrupted"],
    "image_size": ["0", "-5", "1000000", "large"],
    "decoder": ["cv2", "", "pillow,simplejpeg"],
    "workers": ["-1", "many", "99999", "1.5"],
  },
  "folder": {
    "data": ["", "nowhere", "a_file", "full", LONG],
    "image_size": ["0", "-5", "1000000", "large"],
    "val_fraction": ["0", "1", "nan", "-0.5", "some"],
    "strict": ["maybe", "2", "true --data=unreadable"],
    "name": [""],
    "class_names": ["", "nowhere", "full", "a_file"],
  },
  "predict": {
    "top": ["0", "-1", "all"],
    "csv": ["", "full", "a_file/below"],
    "confusion": ["", "full", "a_file/below"],
    "seed": ["9", "one", "1.5"],
    "phase": ["9", "one", "1.5"],
    "network": ["", "resnet8", "no_module:Net", "os:path"],
  },
  "export": {"to": ["", "a_file", "full"]},
  "cache": {"clear": ["maybe", "2", ""]},
  "report": {"output": ["", "run/results.json", "a_file/page.html", "pipe.html", LONG]},
  "learn": {"dataset": ["mnist", "", "folder"]},
  "tables": {
    "table": ["3", "", "1,2"],
    "dataset": ["mnist", "", "folder"],
    "rows": ["best", "", "herding,best"],
    "plan": ["none.yaml", "", "."],
    "upper_bound": ["maybe", "2", ""],
    "root": ["", "a_file", "a_file/below"],
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


def mistakes(experiment):
  specific = SPECIFIC.get(experiment, {})
  if experiment in ("cache", "imagenet", "learn", *WITH_ARGUMENTS):
    return specific  # Those of `learn` and `imagenet` are cifar's, too.
  if experiment == "tables":
    # Its rows decide what other flags would contradict.
    own = COMMON.keys() & {*define_flags()}
    alone = {f: [v for v in COMMON[f] if " " not in v] for f in own}
    return alone | specific
  return COMMON | specific


CASES = [
  (experiment, flag, value)
  for experiment in EXPERIMENTS
  for flag, values in mistakes(experiment).items()
  for value in values
]


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


def test_every_flag_has_three_mistakes():
  ours = {
    flag
    for e in EXPERIMENTS
    for flag in (
      define_flags()
      if e == "tables"
      else importlib.import_module(f"experiments.{e}").FLAGS
    )
  }
  table = {f: v for e in EXPERIMENTS for f, v in mistakes(e).items()} | COMMON
  assert set(table) == ours
  free = {"name"}  # Any text will do.
  assert not [
    f for f, values in table.items() if len(values) < 3 and f not in free
  ]


@pytest.mark.parametrize(
  "argument", ["--nosuchflag=1", "--noadjust=1", "stray"]
)
def test_what_is_no_flag_is_named(place, argument):
  outcome = command.call("digits", argument, cwd=place)
  command.assert_refused(outcome, argument.strip("-").partition("=")[0])


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
