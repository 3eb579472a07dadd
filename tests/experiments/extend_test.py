"""`experiments.extend`: more classes in a copy of a run."""

import json

import numpy as np
from PIL import Image
import pytest
from support import command, finished_run, saved_learner
from support.command import assert_refused

from mnemonics_jax import Learner, runs
from mnemonics_jax.runs import claim


@pytest.fixture(scope="module")
def home(tmp_path_factory):
  home = tmp_path_factory.mktemp("home")
  finished_run.write(home / "run")
  finished_run.write_folder(home / "data", (0, 4, 5))
  finished_run.write_folder(home / "known", (0, 1))
  saved_learner.write(home / "learner")
  for name in ("cat", "dog"):
    (home / "pets" / name).mkdir(parents=True)
    for number in range(4):
      path = home / "pets" / name / f"{number}.png"
      Image.new("RGB", (8, 8), (9 * number, 0, 0)).save(path)
  return home


def extend(home, *arguments, train=False):
  return command.call("extend", *map(str, arguments), cwd=home, train=train)


def test_new_classes_become_phases_of_a_copy(home):
  flags = "--data=data", "--workdir=new", "--phases=2"
  done = extend(home, "run", *flags, train=True)
  assert not done.code, done.err
  assert "no test images of 3 learned classes (class 1, class 2" in done.out
  assert done.out.endswith("Report: new/report.html\n")
  assert (home / "new" / "report.html").exists()
  results = json.loads((home / "new" / "results.json").read_text())
  assert results["classes_per_phase"] == [3, 1, 1, 1]
  assert results["class_names"][4:] == ["class 4", "class 5"]
  assert [p.get("classes_tested") for p in results["runs"][0]["phases"]] == [
    None, None, 2, 3,
  ]  # fmt: skip
  # Of phase 0 one class was tested to the end, which is not the same as three.
  assert results["runs"][0]["phases"][3]["by_group"]["head"][0] is not None
  assert results["summary"]["head"]["forgetting"]["mean"] is None
  before = (home / "new" / "metrics.jsonl").read_bytes()
  again = extend(home, "run", *flags, train=True)
  assert not again.code
  assert (home / "new" / "metrics.jsonl").read_bytes() == before
  other = extend(home, "run", "--data=data", "--workdir=new", train=True)
  assert_refused(other, "--workdir=new", "extended_in_phases (2 there, 1 now)")


@pytest.mark.parametrize(
  ("arguments", "parts"),
  [
    ([], ["RUN is missing", "--data=DIR"]),
    (["nowhere"], ["There is no directory nowhere"]),
    (["run"], ["--data is missing"]),
    (["run", "--data=data"], ["--workdir is missing"]),
    (["run", "more", "--data=data"], ["'more' is not a flag"]),
    (["run", "--data=data", "--workdir=x", "--phases=a"], ["--phases=a"]),
    (["run", "--data=data", "--workdir=x", "--phases=0"], ["--phases=0"]),
    (["run", "--data=data", "--workdir=x", "--phases=1,2"], ["--phases=1,2"]),
    (
      ["run", "--data=data", "--workdir=x", "--phases=3"],
      ["--phases=3 cannot share 2 new classes"],
    ),
    (["run", "--data=known", "--workdir=x"], ["--data has no class"]),
    (["run", "--data=nothing", "--workdir=x"], ["--data=nothing", "not exist"]),
    (["run", "--data=data", "--workdir=run"], ["--workdir=run is the run"]),
    (["run", "--data=data", "--workdir=data"], ["--workdir=data exists"]),
    (
      ["run", "--data=data", "--workdir=x", "--method=lwf"],
      ["--method has no effect here", "RUN has decided it"],
    ),
    (
      ["run", "--data=data", "--workdir=x", "--coordinator=auto"],
      ["--coordinator has no effect here"],
    ),
    (
      ["data", "--data=data", "--workdir=x"],
      ["there is nothing learned in data", "the work directory of a run"],
    ),
    (
      ["learner", "--data=data", "--workdir=x", "--keep=2"],
      ["--keep has no effect on a learner"],
    ),
    (["learner", "--data=data", "--workdir=data"], ["--workdir=data exists"]),
    (["learner", "--data=pets", "--workdir=x"], ["--data has no class"]),
    (
      ["learner", "--data=data", "--workdir=x", "--phases=4"],
      ["--phases=4 cannot share 3 new classes"],
    ),
  ],
)
def test_mistakes(home, arguments, parts):
  assert_refused(extend(home, *arguments), *parts)


def test_of_two_learners_in_one_directory_one_is_refused(home):
  with claim.reserved(home / "both"):  # As another command would.
    done = extend(home, "learner", "--data=data", "--workdir=both", train=True)
  assert_refused(done, "--workdir=both is in use by process")
  assert not (home / "both").exists()


@pytest.mark.parametrize("kind", ["learner", "export"])
def test_a_learner_learns_more(home, kind):
  source, flags = home / "learner", ("--data=data", f"--workdir=new_{kind}")
  if kind == "export":
    runs.export(*Learner.load(source), home / "export")
    source = home / "export"
  done = extend(home, source.name, *flags, "--phases=2", train=True)
  assert not done.code, done.err
  learner, known = Learner.load(home / f"new_{kind}")
  assert known.names == (
    *["cat", "dog", "fox"],
    "class 0",
    "class 4",
    "class 5",
  )
  assert known.phases == (2, 1, 2, 1)
  # Three classes have no test images; there are 6 of each of the others.
  note, first, second, where = done.out.splitlines()[-4:]
  assert "there are no test images of 3 learned classes (cat, dog, fox)" in note
  assert first.startswith("phase 2 · 5 classes · head ")
  assert second.startswith("phase 3 · 6 classes · head ")
  assert where == f"Learner: new_{kind}"
  shown = finished_run.ALL.test_images
  labels = finished_run.ALL.test_labels
  rows = np.isin(labels, (0, 4, 5))
  scores = learner.evaluate(
    known, shown[rows], [f"class {label}" for label in labels[rows]]
  )
  assert f"head {100 * scores.accuracy:.1f} %" in second
  again = extend(home, source.name, *flags, train=True)
  assert_refused(again, f"--workdir=new_{kind} exists")


def test_folders_may_be_called_as_when_they_were_learned(home, tmp_path):
  learner, known = Learner.load(home / "learner")
  learner.save(known._replace(names=("tench", "dog", "fox")), tmp_path / "fish")
  finished_run.write_folder(tmp_path / "data", (0, 1, 4))
  for split in ("train", "val"):
    for label, name in ((0, "n01440764"), (1, "canis"), (4, "n02123045")):
      folder = tmp_path / "data" / split / f"class {label}"
      folder.rename(folder.with_name(name))
  (tmp_path / "names.txt").write_text("canis dog\nn02123045 cat\n")
  done = command.call(
    *("extend", "fish", "--data=data", "--workdir=more"),
    "--class_names=names.txt", cwd=tmp_path, train=True,
  )  # fmt: skip
  assert not done.code, done.err
  assert "no test images of 1 learned classes (fox)" in done.out
  _, more = Learner.load(tmp_path / "more")
  assert more.names == ("tench", "dog", "fox", "cat")


def test_one_class_is_enough(home):
  for i in range(8):
    path = home / "one" / "owl" / f"{i}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 10), (i, 0, 0)).save(path)
  with pytest.raises(command.Accepted):
    extend(home, "run", "--data=one", "--workdir=owls")
