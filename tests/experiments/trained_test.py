"""Commands that take a trained RUN: export, extend, publish, report; mistakes of all."""

import importlib
import json
import os

import numpy as np
from PIL import Image
import pytest
from support import (
  command,
  finished_run,
  report_fixture,
  saved_learner,
  tiny,
)
from support.command import Accepted, assert_refused

from mnemonics_jax import (
  Learner,
  PerClass,
  data,
  methods,
  networks,
  phase,
  runs,
)
from mnemonics_jax.progress import ignore
from mnemonics_jax.report import page
from mnemonics_jax.runs import claim
from mnemonics_jax.settings import Settings

# Networks of a user, in the directory where the commands are typed.
MODULE = """
from flax import linen as nn


class Features(nn.Module):
  width: int = 8

  @nn.compact
  def __call__(self, images, train):
    return nn.Dense(self.width)(images.reshape(len(images), -1) - 0.5)


small = Features()
wide = Features(9)
number = 3


def make():
  return Features(8)


def needs(width):
  return Features(width)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
  """A run, learners, folders of images; and what a network of one's own learned."""
  home = tmp_path_factory.mktemp("home")
  finished_run.write(home / "run")
  finished_run.write_folder(home / "data", (0, 4, 5))
  finished_run.write_folder(home / "known", (0, 1))
  saved_learner.write(home / "learner")
  for name in ("cat", "dog", "owl"):
    folder = home / ("one" if name == "owl" else "pets") / name
    folder.mkdir(parents=True)
    for number in range(8):
      image = Image.new("RGB", (20, 10), (9 * number, 0, 0))
      image.save(folder / f"{number}.png")

  (home / "own_features.py").write_text(MODULE)
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(home)
    own = importlib.import_module("own_features")
  options = dict(saved_learner.QUICK, exemplars="herding")
  learner = Learner(own.Features(), memory="per_class:2", **options)
  shown = saved_learner.pictures(cat=4, dog=4)
  learner.save(learner.learn(None, *shown, report=ignore), home / "own_learner")
  stream = data.stream(data.load("digits"), phases=1, images_per_class=6)
  config = phase.Config(
    networks.Network(own.Features(), stream.image_shape),
    methods.LUCIR(),
    stream.shape,
    memory=PerClass(2),
    base=saved_learner.ONCE,
    train=saved_learner.ONCE,
  )
  runs.run(config, stream, home / "own_run")
  return home


def call(home, line, **options):
  name, *arguments = line.split()
  return command.call(name, *arguments, cwd=home, **options)


def done(home, line, **options):
  """What a command prints that ends well."""
  outcome = call(home, line, **options)
  assert not outcome.code, outcome.err
  return outcome.out


MISTAKES = {
  "predict": ["RUN is missing", "experiments.predict RUN"],
  "predict nowhere data": ["There is no directory nowhere"],
  "predict run": ["no image to look at"],
  "predict run nothing.png": ["There is no nothing.png"],
  "predict run run/seed_0": ["has no image"],
  "predict data data": ["nothing learned in data"],
  "predict run data --top=0": ["--top=0", "1 or more"],
  "predict run data --seed=5": ["--seed=5", "0, 1"],
  "predict run data --phase=5": ["--phase=5", "0, 1"],
  "predict run data --csv=data": ["--csv=data is a directory"],
  "predict run data --csv=run/config.json/x": ["--csv=", "not a directory"],
  "predict run data --class_names=none": ["--class_names=none cannot be read"],
  "export": ["RUN is missing", "--to=DIR"],
  "export run": ["--to is missing"],
  "export nowhere --to=x": ["There is no directory nowhere"],
  "export run run --to=x": ["'run' is not a flag"],
  "export run --to=run": ["--to=", "exists and is not empty"],
  "export run --to=run/config.json/x": ["--to=", "not a directory"],
  "export run --to=x --phase=7": ["--phase=7", "0, 1"],
  "export run --to=": ["--to is empty"],
  "publish": ["MODEL, RUN and DIR are needed"],
  "publish no_model no_run x": ["there is no base model"],
  "report": ["name the work directory"],
  "report nothing": ["There is no directory nothing"],
  "report run --output=page.txt": ["--output=", "neither a directory nor a page"],
  "report run --output=nowhere": ["--output=", "neither a directory nor a page"],
  "report run --output=run/config.json/page.html": [
    "--output=", "is not a directory"
  ],
  "extend": ["RUN is missing", "--data=DIR"],
  "extend nowhere": ["There is no directory nowhere"],
  "extend run": ["--data is missing"],
  "extend run --data=data": ["--workdir is missing"],
  "extend run more --data=data": ["'more' is not a flag"],
  "extend run --data=data --workdir=x --phases=a": ["--phases=a"],
  "extend run --data=data --workdir=x --phases=0": ["--phases=0"],
  "extend run --data=data --workdir=x --phases=1,2": ["--phases=1,2"],
  "extend run --data=data --workdir=x --phases=3": [
    "--phases=3 cannot share 2 new classes"
  ],
  "extend run --data=known --workdir=x": ["--data has no class"],
  "extend run --data=nothing --workdir=x": ["--data=nothing", "not exist"],
  "extend run --data=data --workdir=run": ["--workdir=run is the run"],
  "extend run --data=data --workdir=data": ["--workdir=data exists"],
  "extend run --data=data --workdir=x --method=lwf": [
    "--method has no effect here", "RUN has decided it"
  ],
  "extend run --data=data --workdir=x --coordinator=auto": [
    "--coordinator has no effect here"
  ],
  "extend data --data=data --workdir=x": [
    "there is nothing learned in data", "the work directory of a run"
  ],
  "extend learner --data=data --workdir=x --keep=2": [
    "--keep has no effect on a learner"
  ],
  "extend learner --data=data --workdir=data": ["--workdir=data exists"],
  "extend learner --data=pets --workdir=x": ["--data has no class"],
  "extend learner --data=data --workdir=x --phases=4": [
    "--phases=4 cannot share 3 new classes"
  ],
  # A network of one's own has to be named.
  "predict own_run data": ["own_features.Features", "again, as --network=..."],
  "export own_run --to=x": ["own_features.Features", "again, as --network=..."],
  "extend own_run --data=data --workdir=x": [
    "own_features.Features", "again, as --network=..."
  ],
  **{
    f"predict own_run data --network={given}": parts
    for given, parts in {
      "Features": ["names nothing", "package.module:name"],
      "own_features:": ["names nothing"],
      "../own_features:Features": ["names nothing"],
      "no_module:Features": ["cannot be used", "No module named"],
      "own_features:none": ["cannot be used", "has no attribute 'none'"],
      "own_features:needs": ["cannot be used", "without arguments"],
      "own_features:number": ["cannot be used", "without arguments"],
      "builtins:dict": ["is a dict"],
      "own_features:wide": ["not the weights of this --network"],
    }.items()
  },
}  # fmt: skip


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes(home, line):
  assert_refused(call(home, line), *MISTAKES[line])


# Export, publish and report.


def test_an_export_is_asked_and_learned_from_again(home):
  said = done(home, "export run --to=out --seed=1 --phase=0")
  assert "3 classes after phase 0 of seed 1: 9 exemplars" in said
  assert said.endswith("in out.\n")
  one, known = Learner.load(home / "run", seed=1, phase=0)
  other, again = Learner.load(home / "out")
  shown = finished_run.ALL.test_images
  assert np.array_equal(
    one.predict_proba(known, shown), other.predict_proba(again, shown)
  )
  assert "of 9)" in done(home, "predict out out/train --top=1")
  with pytest.raises(Accepted):
    flags = "--base_classes=2 --phases=1 --memory=per_class:2"
    call(home, f"folder --data=out {flags}")


def test_a_model_is_published_and_begun_with(tmp_path):
  config, stream = tiny.setup(
    finished_run.METHOD, split=(3, 1), **finished_run.OPTIONS
  )
  models = tmp_path / "models"
  runs.run(config, stream, tmp_path / "run", base_models=models)
  (model,) = models.iterdir()
  line = f"publish {model} run public/tiny"
  said = done(tmp_path, line)
  assert "3 classes of tiny (head " in said
  assert said.endswith("in public/tiny.\n")
  assert_refused(call(tmp_path, line), "public/tiny exists")
  # Settings are named by what it is, wherever it lies.
  name = lambda path: Settings(
    "tiny", "short", base_model=str(tmp_path / path)
  ).identity()
  (tmp_path / "public/tiny").rename(tmp_path / "moved")
  there = name("moved")
  (tmp_path / "moved").rename(tmp_path / "again")
  assert there == name("again") and len(there["base_model"]) == 64


@pytest.mark.parametrize(
  "line, written",
  {
    "report shown": "shown/report.html",
    "report shown --output=page.html": "page.html",
    "report shown --output=shown": "shown/report.html",
  }.items(),
)
def test_a_page_is_where_it_was_asked_for(tmp_path, monkeypatch, line, written):
  monkeypatch.setattr(page, "DRAWERS", ())  # They take seconds.
  report_fixture.write(tmp_path / "shown", groups=(1, 1), seeds=(0,))
  outcome = call(tmp_path, line)
  assert (outcome.code, outcome.out.strip()) == (0, written)
  assert written in outcome.files


# Extend.


def test_new_classes_become_phases_of_a_copy(home):
  line = "extend run --data=data --workdir=new --phases=2"
  said = done(home, line, train=True)
  assert "no test images of 3 learned classes (class 1, class 2" in said
  assert said.endswith("Report: new/report.html\n")
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
  done(home, line, train=True)
  assert (home / "new" / "metrics.jsonl").read_bytes() == before
  other = call(home, "extend run --data=data --workdir=new", train=True)
  assert_refused(other, "--workdir=new", "extended_in_phases (2 there, 1 now)")


@pytest.mark.parametrize("kind", ["learner", "export"])
def test_a_learner_learns_more(home, kind):
  if kind == "export":
    runs.export(*Learner.load(home / "learner"), home / "export")
  line = f"extend {kind} --data=data --workdir=new_{kind} --phases=2"
  said = done(home, line, train=True)
  learner, known = Learner.load(home / f"new_{kind}")
  new = "class 0", "class 4", "class 5"
  assert known.names == ("cat", "dog", "fox", *new)
  assert known.phases == (2, 1, 2, 1)
  # Three classes have no test images; there are 6 of each of the others.
  note, first, second, where = said.splitlines()[-4:]
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
  assert_refused(call(home, line), f"--workdir=new_{kind} exists")


def test_of_two_learners_in_one_directory_one_is_refused(home):
  with claim.reserved(home / "both"):  # As another command would.
    outcome = call(home, "extend learner --data=data --workdir=both")
  assert_refused(outcome, "--workdir=both is in use by process")
  assert not (home / "both").exists()


def test_folders_may_be_called_as_when_they_were_learned(home, tmp_path):
  learner, known = Learner.load(home / "learner")
  learner.save(known._replace(names=("tench", "dog", "fox")), tmp_path / "fish")
  finished_run.write_folder(tmp_path / "data", (0, 1, 4))
  for split in ("train", "val"):
    for label, name in ((0, "n01440764"), (1, "canis"), (4, "n02123045")):
      folder = tmp_path / "data" / split / f"class {label}"
      folder.rename(folder.with_name(name))
  (tmp_path / "names.txt").write_text("canis dog\nn02123045 cat\n")
  line = "extend fish --data=data --workdir=more --class_names=names.txt"
  said = done(tmp_path, line, train=True)
  assert "no test images of 1 learned classes (fox)" in said
  _, more = Learner.load(tmp_path / "more")
  assert more.names == ("tench", "dog", "fox", "cat")


def test_one_class_is_enough(home):
  with pytest.raises(Accepted):
    call(home, "extend run --data=one --workdir=owls")


# A network of one's own.

NETWORK = "--network=own_features:Features"


@pytest.mark.parametrize("name", ["Features", "small", "make"])
def test_images_are_shown_to_a_network_of_ones_own(home, name):
  line = f"predict own_learner pets --network=own_features:{name}"
  assert "accuracy head" in done(home, line)


def test_it_is_exported_and_asked_again(home):
  done(home, f"export own_run --to=own_out {NETWORK}")
  assert "of 20)" in done(home, f"predict own_out own_out/train {NETWORK}")


def test_it_learns_more_classes(home):
  line = f"extend own_run --data=pets --workdir=own_more {NETWORK}"
  assert done(home, line, train=True).endswith("Report: own_more/report.html\n")


# Paths.


def test_a_file_is_written_before_its_table_is_printed(home, monkeypatch):
  """Who reads the table may go away, as `head` does."""

  def gone(*_, **__):
    raise BrokenPipeError(32, "Broken pipe")

  monkeypatch.setattr("builtins.print", gone)
  files = "--csv=p.csv --confusion=c.csv"
  assert call(home, f"predict run data/val {files}").code == 141
  assert (home / "p.csv").read_text().startswith("image,true,")
  assert (home / "c.csv").read_text().startswith("true,class 0,")


def test_what_cannot_be_compared_is_still_predicted(home):
  line = "predict run one/owl/0.png --csv=o.csv --confusion=x --top=1"
  found = call(home, line)
  assert found.code == 2 and "known are class 0" in found.err
  assert "one/owl/0.png" in found.out and not (home / "x").exists()
  assert len((home / "o.csv").read_text().splitlines()) == 3


def test_a_csv_may_be_in_a_new_directory(home):
  done(home, "predict run one/owl/0.png --csv=new/dir/p.csv")
  assert (home / "new/dir/p.csv").read_text().startswith("image,true,")


def test_a_tilde_may_begin_a_name(home):
  """Unless it is the user's own, or that of another user."""
  assert os.path.expanduser("~no") == "~no"
  assert_refused(call(home, "export ~no/run --to=x"), "~no/run")
  assert_refused(call(home, "predict run ~no.png"), "~no.png")
  assert "in ~no." in done(home, "export learner --to=~no")
  assert (home / "~no/model.json").exists()
