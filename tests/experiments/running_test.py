"""What a command adds to the library's run: data, places, words and advice."""

import dataclasses
import json
from pathlib import Path
import subprocess
import sys

from PIL import Image
import pytest
from support import command, data_files, report_fixture, tiny

from experiments import flags as flags_lib
from experiments import running
from experiments.flags import in_flags
from mnemonics_jax import data, report, runs
from mnemonics_jax.data import DataError, cifar100
from mnemonics_jax.errors import DiskError, UserError
from mnemonics_jax.progress import Note, PhaseEnds, RunBegins
from mnemonics_jax.settings import Settings, presets, setting
from mnemonics_jax.settings import settings as settings_lib

ROOT = Path(__file__).parents[2]
SETTINGS = Settings(
  "tiny", "short", net="resnet8", memory="per_class:2", base_classes=3, phases=3
)


@pytest.fixture
def library(monkeypatch):
  """Instead of `runs.run`: notes its arguments; `does` is what it does."""

  class Library:
    calls = ()
    does = staticmethod(lambda report: None)

    def __call__(self, **options):
      self.calls += (options,)
      self.does(options["report"])
      return {"title": "made up"}

  library = Library()
  monkeypatch.setattr(runs, "run", library)
  monkeypatch.setattr(running, "show", lambda *_: None)
  return library


def raising(error):
  def fail(_):
    raise error

  return fail


# The call of the library.

FLAGS = flags_lib.of_run("digits")
FLAGS(["command"])


def run(settings=SETTINGS, dataset=None, **flags):
  values = command.parsed(flags_lib.of_run("digits"), **flags)
  dataset = dataset or tiny.dataset()
  return running.run(settings, dataset, Path("out"), flags=values)


def test_settings_become_a_call_of_the_library(library):
  assert run(tensorboard="false") == {"title": "made up"}
  (options,) = library.calls
  config, stream = options.pop("config"), options.pop("stream")
  assert config.shape == stream.shape
  assert options.pop("report")
  assert options == {
    "workdir": Path("out"),
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
  run(dataset=dataclasses.replace(tiny.dataset(), name="pets"))
  (options,) = library.calls
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
    run(settings, dataset)
  reduced, papers = (options["labels"] for options in library.calls)
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


def test_a_page_is_written_after_every_phase_that_asks_for_it(
  library, monkeypatch
):
  built = []
  monkeypatch.setattr(report, "build", built.append)
  library.does = lambda report: report(PhaseEnds(0, 3, {"head": 0.5}))
  run()
  assert not built
  run(report_every_phase="true")
  assert built == [[Path("out")]]


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
  message = in_flags(str(raised.value), FLAGS)
  assert message.startswith(f"seed 0, stage {stage}: it diverged; {advice}")


# From a command line to that call.


def call(tmp_path, *flags, name="digits"):
  """A command that learns what `library` makes of it."""
  if not any(flag.startswith("--preset") for flag in flags):
    flags = ("--preset=smoke", *flags)
  return command.call(name, *flags, cwd=tmp_path)


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
  done = call(tmp_path, "--workdir=out")
  expected = message or in_flags(str(error), FLAGS)
  assert (done.code, done.err) == (2, f"error: {expected}\n")
  assert "--fresh" in done.err or message is None


def test_a_fresh_start_says_how_to_continue_it(tmp_path, library):
  (tmp_path / "out").mkdir()
  assert not call(tmp_path, "--workdir=out", "--fresh").code
  (options,) = library.calls
  assert options["workdir"] == Path("out-2")
  assert options["advice"] == (
    "To continue, give --workdir=out-2 instead of --fresh."
  )


def test_a_fresh_start_leaves_the_old_directory(tmp_path):
  out = tmp_path / "out"
  assert running.fresh(out) == out
  out.mkdir()
  assert running.fresh(out) == tmp_path / "out-2"
  (tmp_path / "out-2").mkdir()
  assert running.fresh(out) == tmp_path / "out-3"


def test_saving_and_places_are_those_of_the_flags(tmp_path, library):
  done = call(
    tmp_path, "--checkpoint_every=5", "--keep=2", "--notensorboard",
    "--base_models=~/models", "--workdir=~nobody",
  )  # fmt: skip
  assert not done.code, done.err
  (options,) = library.calls
  assert options["saving"] == runs.Policy(5.0, 2, 25.0)
  assert options["base_models"] == tmp_path / "models"
  # It is nobody's home, but a name.
  assert options["workdir"] in (Path("~nobody"), Path("~nobody").expanduser())
  assert options["tensorboard"] is False
  assert options["advice"] == "The same command continues from there."


@pytest.mark.parametrize("left, told", [(0.1, True), (0.6, False)])
def test_forgotten_classes_are_told_with_the_flags_that_help(
  tmp_path, monkeypatch, capsys, left, told
):
  path = report_fixture.write(tmp_path / "out", seeds=(0,))
  results = json.loads((path / "results.json").read_text())
  results["runs"][0]["phases"][-1]["by_group"]["head"][0] = left
  (path / "results.json").write_text(json.dumps(results))
  monkeypatch.setattr(report, "build", lambda _: "report.html")
  running.show(results, path, FLAGS)
  out = capsys.readouterr().out
  assert ("The first three classes are hardly recognised" in out) is told
  assert ("What may help: --finetune=head" in out) is told


# Data.


def test_what_a_command_learns_is_what_its_flags_say(
  tmp_path, library, monkeypatch
):
  asked = []
  small = tiny.dataset(classes=100, train=6, test=1)

  def load(data_dir, *, download, **_):
    asked.append((data_dir, download))
    return small

  monkeypatch.setattr(cifar100, "load", load)
  given = "--data_dir=here", "--download", "--phases=10", "--memory=per_class:2"
  done = call(tmp_path, *given, name="cifar")
  assert not done.code, done.err
  assert asked == [("here", True)]
  (options,) = library.calls
  assert options["settings"]["dataset"] == "cifar100"
  assert options["settings"]["net"] == "resnet8"
  assert len(options["stream"]) == 11


def test_classes_and_data_have_the_names_that_were_given(tmp_path, library):
  data_files.write_folder(tmp_path / "images")
  (tmp_path / "names.txt").write_text("cat  Felis catus\n")
  given = "--data=images", "--name=pets", "--class_names=names.txt"
  more = (
    "--image_size=9",
    "--phases=1",
    "--method=lucir",
    "--memory=per_class:2",
  )
  done = call(tmp_path, *given, *more, name="folder")
  assert not done.code, done.err
  (options,) = library.calls
  assert options["stream"].name == "pets"
  assert options["stream"].image_shape == (9, 9, 3)
  assert {*options["stream"].class_names} == {"Felis catus", "dog"}
  # λ_base is ImageNet's, as for photographs in the paper.
  assert options["settings"]["less_forget"] == 10.0


def test_flags_and_settings_reach_the_loader(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  data_files.write_folder(tmp_path / "images")
  (tmp_path / "images/train/cat/text.png").write_text("no image")
  given = dict(data=str(tmp_path / "images"), image_size="9", preset="smoke")

  def load(**flags):
    values = flags_lib.of_run("folder")
    flags_lib.define(values, Settings, only=["data"])
    command.parsed(values, **flags)
    return running.load(flags_lib.settings(values, "folder"), values)

  assert load(**given).image_shape == (9, 9, 3)
  with pytest.raises(DataError, match=r"text\.png"):
    load(**given, strict="true")


@pytest.mark.parametrize(
  "flag, name", [("--subset", "imagenet_subset"), ("--full", "imagenet")]
)
def test_a_flag_chooses_the_imagenet(tmp_path, monkeypatch, flag, name):
  found = []
  monkeypatch.setattr(
    running, "learn", lambda dataset, _: found.append(dataset)
  )
  assert not command.call("imagenet", flag, cwd=tmp_path).code
  assert found == [name]


@pytest.mark.parametrize(
  "line, said",
  [
    ("imagenet", "add --subset"),
    ("folder", "--data=DIR"),
    # Flags of other data sets are none of this command.
    ("digits --dataset=cifar100 --download", "--dataset is not a flag"),
    ("digits --data_dir=/nonexistent", "--data_dir is not a flag"),
    ("cifar --strict", "--strict is not a flag"),
    ("learn --val_fraction=0.1", "--val_fraction is not a flag"),
  ],
)
def test_data_that_are_not_there_or_not_asked_for(tmp_path, line, said):
  name, *flags = line.split()
  command.assert_refused(command.call(name, *flags, cwd=tmp_path), said)


def test_missing_data_are_noticed_before_jax_is_imported(tmp_path):
  code = (
    "import sys\nfrom experiments import cifar\nfrom mnemonics_jax import data\n"
    f"try: data.load('cifar100', {str(tmp_path / 'nowhere')!r})\n"
    "except data.DataError: print('jax' in sys.modules)"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
  )
  assert done.stdout.strip() == "False", done.stderr


# Work directories.

DIGITS = Settings("digits", "smoke", **presets.of("digits")["smoke"])


def name(settings=DIGITS, data=17, root="runs"):
  return running.usual_workdir(settings, data, root)


def test_a_setting_that_comes_later_renames_nothing():
  """Only what differs from the defaults is in a name."""

  @dataclasses.dataclass(frozen=True)
  class Later(Settings):
    depth: int = setting("Training", 3)

  later = Later("digits", "smoke", **presets.of("digits")["smoke"])
  assert name(later) == name()
  assert name(dataclasses.replace(later, depth=4)) != name()


def test_a_name_depends_on_data_and_numerics(monkeypatch):
  """And on settings, as contracts/settings_test.py has it."""
  assert (name().parent, name(root="x").parent) == (Path("runs"), Path("x"))
  before = name()
  assert name() == before != name(data=18)
  monkeypatch.setattr(settings_lib, "NUMERICS", settings_lib.NUMERICS + 1)
  assert name() != before


def test_one_folder_is_one_data_set_however_it_is_written(tmp_path):
  """The checksum tells data apart; config.json knows that they may lie elsewhere."""
  plain = Settings("folder", "short", data="pets")
  for place in ("./pets", "/somewhere/pets"):
    other = dataclasses.replace(plain, data=place)
    assert name(other) == name(plain)
  # A run goes on that was begun when the name depended on the place.
  former = tmp_path / plain.name(17, with_place=True)
  assert former.name != name(plain).name
  former.mkdir()
  assert name(plain, root=str(tmp_path)) == former
