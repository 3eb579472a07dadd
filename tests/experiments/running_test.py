"""What a command adds to the library's run: flags in messages, and advice."""

import dataclasses
import json
from pathlib import Path

from absl.testing import flagsaver
from PIL import Image
import pytest
from support import report_fixture, tiny

from experiments import command, running
from mnemonics_jax import data, report, runs
from mnemonics_jax.errors import DiskError, UserError
from mnemonics_jax.progress import Note, RunBegins
from mnemonics_jax.settings import Settings, presets

SETTINGS = Settings(
  "tiny", "short", net="resnet8", memory="per_class:2", base_classes=3, phases=3
)


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
  """Programs that are compiled here are not the user's."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def library(monkeypatch):
  """Instead of `runs.run`: notes its arguments; `does` is what it does."""

  class Library:
    calls = ()
    does = staticmethod(lambda report: None)

    def __call__(self, *arguments, **options):
      self.calls += ((arguments, options),)
      self.does(options["report"])
      return {"title": "made up"}

  library = Library()
  monkeypatch.setattr(runs, "run", library)
  return library


def run(workdir=Path("out"), **options):
  return running.run(SETTINGS, tiny.dataset(), workdir, **options)


def raising(error):
  def fail(_):
    raise error

  return fail


def test_settings_become_a_call_of_the_library(library):
  assert run(tensorboard=False) == {"title": "made up"}
  (((config, stream, workdir), options),) = library.calls
  assert config.shape == stream.shape and workdir == Path("out")
  assert options.pop("report")
  assert options == {
    "seeds": (0,),
    "settings": SETTINGS.identity(),
    "labels": (
      *("tiny · lucir · mnemonics · per_class:2", "short", "reduced"),
      ("dataset tiny (paper: CIFAR-100 and ImageNet)",),
    ),
    "tensorboard": False,
    "base_model": None,
  }


def test_titles_call_the_data_what_the_user_does(library):
  pets = dataclasses.replace(tiny.dataset(), name="pets")
  running.run(SETTINGS, pets, Path("out"))
  ((_, options),) = library.calls
  assert options["labels"].title.startswith("pets · lucir")


def test_a_folder_is_reduced_as_long_as_its_images_are_cut(library, tmp_path):
  """Even if nothing else of --preset=paper is changed."""
  for i in range(10 * 26):
    place = tmp_path / "images" / f"class_{i % 10}"
    place.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (i % 256, 0, 0)).save(place / f"{i}.png")
  cut = data.load("folder", tmp_path / "images", image_size=8)
  settings = Settings("folder", "paper", **presets.of("folder")["paper"])
  assert settings.memory == "per_class:20" and settings.less_forget == 10
  for dataset in (cut, dataclasses.replace(cut, departures=())):
    running.run(settings, dataset, tmp_path / "out")
  reduced, papers = (options["labels"] for _, options in library.calls)
  assert reduced.schedule == "reduced" and papers.schedule == "paper"
  (told,) = reduced.departures
  assert told.startswith("images cut to squares beforehand")


def test_notes_of_the_library_are_shown_as_flags(library, capsys):
  def tell(report):
    report(RunBegins(4, (0,), (1.0,) * 4))
    report(Note("Note: too much; `exemplar_chunk=2` should fit, `x_1` stays."))

  library.does = tell
  run()
  opening, *_, note = capsys.readouterr().out.splitlines()
  assert opening.startswith("Learning the 6 classes of tiny")
  assert note == "Note: too much; --exemplar_chunk=2 should fit, `x_1` stays."


@pytest.mark.parametrize(
  "stage, advice",
  {
    "train": "try a lower --learning_rate",
    "finetune": "try a lower --finetune_learning_rate",
    "exemplars": "try --recipe=tuned --scope=head",
    "adjust": "try --recipe=tuned --scope=head",
    "evaluate": "lower the learning rate of that stage",
  }.items(),
)
def test_divergence_names_the_flags_that_help(library, stage, advice):
  fix = "lower the learning rate of that stage"
  error = runs.Diverged(stage, f"seed 0, stage {stage}: it diverged", fix)
  library.does = raising(error)
  with pytest.raises(UserError) as raised:
    run()
  message = command.in_flags(str(raised.value))
  assert message.startswith(f"seed 0, stage {stage}: it diverged; {advice}")


def experiment(tmp_path, **flags):
  flags = {"workdir": str(tmp_path / "out"), **flags}
  with flagsaver.as_parsed(**flags):
    running.run_experiment(SETTINGS, tiny.dataset)


@pytest.mark.parametrize(
  "error, message",
  [
    (
      UserError("workdir", "`workdir=out` is of other settings", "choose one"),
      "--workdir=out is of other settings; choose one, or add --fresh.",
    ),
    (
      runs.WorkdirError("config.json", "out/config.json is damaged", "mend it"),
      "--workdir: out/config.json is damaged; mend it, or add --fresh.",
    ),
    # Starting over would not help with these.
    (DiskError("workdir", "out is full", "make room"), None),
    (runs.BusyError("workdir", "`workdir=out` is in use", "wait"), None),
    (UserError("memory", "`memory=total:2` is too small", "take more"), None),
  ],
)
def test_a_directory_that_cannot_be_continued_offers_fresh(
  tmp_path, library, error, message
):
  library.does = raising(error)
  with pytest.raises(UserError) as raised:
    experiment(tmp_path)
  found = command.in_flags(str(raised.value))
  assert found == (message or command.in_flags(str(error)))
  assert "--fresh" in found or message is None


def test_a_fresh_start_says_how_to_continue_it(tmp_path, library):
  (tmp_path / "out").mkdir()
  library.does = raising(runs.Stopped(130))
  with pytest.raises(runs.Stopped):
    experiment(tmp_path, fresh="true")
  ((arguments, options),) = library.calls
  new = tmp_path / "out-2"
  assert arguments[2] == new
  assert options["advice"] == (
    f"To continue, give --workdir={new} instead of --fresh."
  )


@pytest.mark.parametrize("left, told", [(0.1, True), (0.6, False)])
def test_forgotten_classes_are_told_with_the_flags_that_help(
  tmp_path, library, monkeypatch, capsys, left, told
):
  path = report_fixture.write(tmp_path / "out", seeds=(0,))
  results = json.loads((path / "results.json").read_text())
  results["runs"][0]["phases"][-1]["by_group"]["head"][0] = left
  (path / "results.json").write_text(json.dumps(results))
  monkeypatch.setattr(running, "run", lambda *_, **__: results)
  monkeypatch.setattr(report, "build", lambda _: "report.html")
  experiment(tmp_path)
  out = capsys.readouterr().out
  assert ("The first three classes are hardly recognised" in out) is told
  assert ("What may help: --finetune=head" in out) is told


def test_saving_and_places_are_those_of_the_flags(tmp_path, library):
  library.does = raising(runs.Stopped(130))
  with pytest.raises(runs.Stopped):
    experiment(
      tmp_path, checkpoint_every="5", keep="2",
      base_models=str(tmp_path / "models"), tensorboard="false",
    )  # fmt: skip
  ((_, options),) = library.calls
  assert options["saving"] == runs.Policy(5.0, 2, 25.0)
  assert options["base_models"] == tmp_path / "models"
  assert options["tensorboard"] is False
  assert options["advice"] == "The same command continues from there."


@pytest.mark.parametrize(
  "flags, problem",
  [
    (dict(checkpoint_every="-1"), "--checkpoint_every=-1.0 must be 0 or more"),
    (dict(checkpoint_every="nan"), "--checkpoint_every=nan must be"),
    (dict(keep="0"), "--keep=0 must be 1 or more"),
  ],
)
def test_mistakes_about_saving_are_told(tmp_path, library, flags, problem):
  with pytest.raises(UserError) as raised:
    experiment(tmp_path, **flags)
  assert command.in_flags(str(raised.value)).startswith(problem)
  assert not library.calls
