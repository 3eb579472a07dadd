"""What the README shows must run and come out as it says."""

from pathlib import Path
import re

import pytest
from support import command, data_files, finished_run, report_fixture, tiny

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


EXEMPLARS, RUN, LEARNER = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_library_example_gets_better_exemplars(capsys):
  exec(compile(EXEMPLARS, "README.md", "exec"), {})
  before, after = re.findall(r"([\d.]+)%", capsys.readouterr().out)
  claimed = re.search(
    r"to (\d+) % test accuracy.*?to (\d+) %", README, re.DOTALL
  )
  assert abs(float(before) - float(claimed[1])) < 1.5
  assert abs(float(after) - float(claimed[2])) < 1.5


def test_a_run_is_a_library_call(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  quick = RUN.replace("epochs=20, milestones=(10, 15)", "epochs=1")
  quick = quick.replace("phases=5", "phases=1, images_per_class=20")
  exec(compile(quick, "README.md", "exec"), {})
  out = capsys.readouterr().out
  assert "digits · lucir · mnemonics · per_class:5" in out
  assert (tmp_path / "my_run" / "report.html").exists()


def test_a_learner_is_told_of_classes(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  assert len(LEARNER.strip().splitlines()) <= 17
  quick = LEARNER.replace('preset="short"', 'preset="smoke"')
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
    r"((?:\s+\\?\s*(?:--\w+(?:=[^\s`]+)?|RUN\w*|IMAGES))*)",
    README,
  )
  return [(name, *rest.replace("\\", "").split()) for name, rest in found]


def test_commands_are_found():
  assert ("cifar", "--phases=10", "--data_dir=DIR") in commands()
  assert ("report", "RUN_A", "RUN_B") in commands()
  assert ("predict", "RUN", "IMAGES") in commands()
  assert len(commands()) >= 10


@pytest.mark.parametrize("shown", commands(), ids=" ".join)
def test_commands_are_accepted(tmp_path, monkeypatch, shown):
  """Up to the first training step, where their data are."""
  from mnemonics_jax.data import cifar100

  small = tiny.dataset(classes=100, train=22, test=1)
  monkeypatch.setattr(cifar100, "load", lambda *_, **__: small)
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
    part.replace("--workdir=DIR", "--workdir=out") for part in arguments
  ]
  if name in ("report", "predict", "export"):
    outcome = command.call(name, *arguments, cwd=tmp_path)
    assert not outcome.code, outcome
    return
  with pytest.raises(command.Accepted):
    print(command.call(name, *arguments, cwd=tmp_path))


def test_files_that_are_named_are_there():
  linked = re.findall(r"\]\(([\w/.-]+)\)", README)
  named = re.findall(r"`((?:tests|benchmarks|docs)/[\w/.-]+)`", README)
  assert len(linked) > 5
  missing = [path for path in linked + named if not (ROOT / path).exists()]
  assert not missing
