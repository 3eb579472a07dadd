"""What the README and the guide show must run and come out as they say."""

from pathlib import Path
import re
import shutil

import pytest
from support import command, data_files, finished_run, report_fixture, tiny

from mnemonics_jax.data import cifar100, imagenet

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
GUIDE = {path.stem: path.read_text() for path in (ROOT / "docs").glob("*.md")}
TEXTS = {"README": README, **GUIDE}


def programs(text):
  return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


(LEARNER,) = programs(README)
EXEMPLARS = programs(GUIDE["own_model"])[0]
# Programs of pages; formats.md is read where the files are that it describes.
SHOWN = [
  pytest.param(name, program, id=f"{name} {i}")
  for name, text in sorted(GUIDE.items())
  for i, program in enumerate(programs(text))
  if name != "formats" and program != EXEMPLARS
]


def test_the_library_example_gets_better_exemplars(capsys):
  exec(compile(EXEMPLARS, "own_model.md", "exec"), {})
  before, after = re.findall(r"([\d.]+)%", capsys.readouterr().out)
  claimed = re.search(
    r"to (\d+) % test\s+accuracy.*?to (\d+) %", GUIDE["own_model"], re.DOTALL
  )
  assert abs(float(before) - float(claimed[1])) < 1.5
  assert abs(float(after) - float(claimed[2])) < 1.5


@pytest.mark.parametrize("name, program", SHOWN)
def test_programs_of_the_guide_run(tmp_path, monkeypatch, name, program):
  monkeypatch.chdir(tmp_path)
  report_fixture.write(tmp_path / "finished_run")
  quick = program.replace("epochs=20, milestones=(10, 15)", "epochs=1")
  quick = quick.replace("phases=5", "phases=1, images_per_class=20")
  exec(compile(quick, f"{name}.md", "exec"), {"__name__": "shown"})
  if "my_run" in program:
    assert (tmp_path / "my_run" / "report.html").exists()


def test_the_readme_is_the_short_way_in():
  assert len(README.splitlines()) <= 120
  assert (ROOT / "docs/pictures/report.png").stat().st_size < 300_000


def test_a_learner_is_told_of_classes(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  assert len(LEARNER.strip().splitlines()) <= 17
  quick = LEARNER.replace('augment="crop"', 'augment="crop", preset="smoke"')
  quick = quick.replace("train_images,", "train_images[:200],")
  quick = quick.replace("train_labels\n", "train_labels[:200]\n")
  exec(compile(quick, "README.md", "exec"), {})
  named, accuracy = capsys.readouterr().out.splitlines()
  assert named.endswith("(0, 1, 2, 3)") and 0 <= float(accuracy) <= 1
  assert (tmp_path / "my_learner").is_dir()


def commands() -> list[tuple[str, ...]]:
  """The experiments that are shown, with their arguments."""
  found = re.findall(
    r"python -m\s+\\?\s*experiments\.(\w+)"
    r"((?:\s+\\?\s*(?:--\w+(?:=[^\s`,]+(?:,[^\s`,]+)*)?|RUN\w*|IMAGES|DIR/val))*)",
    "\n".join(TEXTS[name] for name in sorted(TEXTS)),
  )
  shown = [(name, *rest.replace("\\", "").split()) for name, rest in found]
  return list(dict.fromkeys(shown))


def test_commands_are_found():
  assert ("cifar", "--phases=10", "--data_dir=DIR") in commands()
  assert ("report", "RUN_A", "RUN_B") in commands()
  assert ("predict", "RUN", "IMAGES") in commands()
  assert len(commands()) >= 10


# Plans that begin with a published model, and how many cells are asked for.
_PUBLISHED = {
  "--plan=results/studies/network.yaml": 4,
  "--plan=results/studies/schedule.yaml": 1,
  "--plan=results/studies/more_phases.yaml": 2,
}


@pytest.mark.parametrize("shown", commands(), ids=" ".join)
def test_commands_are_accepted(tmp_path, monkeypatch, shown):
  """Up to the first training step, where their data are."""
  small = tiny.dataset(classes=100, train=22, test=1)
  for module, name in (
    (cifar100, "load"),
    (imagenet, "load"),
    (imagenet, "load_subset"),
  ):
    monkeypatch.setattr(module, name, lambda *_, **__: small)
  for name in "abcdefg":
    for i in range(15):
      data_files.save_image(tmp_path / f"DIR/train/{name}/{i}.png")
  data_files.save_image(tmp_path / "IMAGES" / "a.png")
  after = shown[0] in ("predict", "export", "extend")
  for run in ("RUN", "RUN_A", "RUN_B"):
    (finished_run if after else report_fixture).write(tmp_path / run)
  # There is no other process to find, and DIR stands for two directories.
  several = ("--coordinator", "--num_processes", "--process_id")
  name, *arguments = (part for part in shown if not part.startswith(several))
  arguments = [
    part.replace("--workdir=DIR", "--workdir=out")
    .replace("NAME", "digits")
    .replace("DIR/val", "IMAGES")
    .replace("MORE", "DIR")
    for part in arguments
  ]
  (plan,) = re.findall(r"```yaml\n(title: .*?)```", TEXTS["paper"], re.DOTALL)
  (tmp_path / "often.yaml").write_text(plan)
  studies = tmp_path / "results/studies"
  studies.mkdir(parents=True)
  for path in (ROOT / "results/studies").glob("*.yaml"):
    shutil.copy(path, studies)  # What they have measured stays behind.
  models = "results/base_models"
  (tmp_path / models).symlink_to(ROOT / models)
  if name in ("report", "predict", "export"):
    outcome = command.call(name, *arguments, cwd=tmp_path)
    assert not outcome.code, outcome
    return
  cells = [n for plan, n in _PUBLISHED.items() if plan in arguments]
  if cells:  # A published model knows its classes, and these are made up.
    outcome = command.call(name, *arguments, cwd=tmp_path)
    assert [outcome.err.count("phase 0 has others")] == cells, outcome
    return
  with pytest.raises(command.Accepted):
    print(command.call(name, *arguments, cwd=tmp_path))


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_files_that_are_named_are_there(name):
  place = ROOT if name == "README" else ROOT / "docs"
  linked = re.findall(r"\]\(([\w/.-]+)(?:#[\w-]+)?\)", TEXTS[name])
  linked += re.findall(r'(?:src|href)="([\w/.-]+)"', TEXTS[name])
  named = re.findall(
    r"`((?:tests|benchmarks|docs|mnemonics_jax)/[\w/.-]+)`", TEXTS[name]
  )
  assert name != "README" or len(linked) > 5
  missing = [path for path in linked if not (place / path).exists()]
  missing += [path for path in named if not (ROOT / path).exists()]
  assert not missing
