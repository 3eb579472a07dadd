"""The command that prepares data: what it says, and how it ends."""

import pytest
from support import data_files, imagenet

from mnemonics_jax.data import prepare
from mnemonics_jax.progress import DataReport


def test_a_missing_source_is_told(tmp_path, capsys):
  assert prepare.run(None, None) == 2
  assert "--source is missing" in capsys.readouterr().err
  assert prepare.run(str(tmp_path), None) == 2
  assert f"--source={tmp_path}" in capsys.readouterr().err
  assert prepare.run(None, None, "imagenet_subset") == 2
  assert "--source is missing; name a directory" in capsys.readouterr().err


def test_flags_without_effect_are_refused(capsys):
  assert prepare.run("somewhere", None, "cifar100", reduced=True) == 2
  assert "--reduced has no effect on CIFAR-100" in capsys.readouterr().err


def test_an_interruption_is_no_mistake(monkeypatch, capsys):
  def interrupted(*_, **__):
    raise KeyboardInterrupt

  monkeypatch.setattr(prepare, "prepare_cifar100", interrupted)
  assert prepare.run("somewhere", None) == 130
  assert "the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
  "terminal, shown", [(True, ["50%", "100%\n"]), (False, ["50%\n"])]
)
def test_progress_is_shown_now_and_then(monkeypatch, capsys, terminal, shown):
  """In place on a terminal; else a line a minute, of which there is one here."""
  times = iter([0.0, 0.1, 61.0, 61.1])
  monkeypatch.setattr(prepare.sys.stderr, "isatty", lambda: terminal)
  monkeypatch.setattr(prepare.time, "monotonic", lambda: next(times))
  hear = prepare._progress()
  for done in (10, 50, 100):
    hear(DataReport(done, 100))
  told = capsys.readouterr().err
  assert told.split() == [text.strip() for text in shown] or all(
    text.strip() in told for text in shown
  )
  assert ("\r" in told) == terminal and "10%" not in told


def test_cifar100_on_the_command_line(tmp_path, official):
  module = "-m", "mnemonics_jax.data.prepare"
  result = data_files.run_python(
    *module, f"--source={official[0]}", f"--data_dir={tmp_path}"
  )
  assert result.returncode == 2
  assert "not the official file" in result.stderr
  assert "Traceback" not in result.stderr
  assert list(tmp_path.iterdir()) == []


def test_imagenet_on_the_command_line(tmp_path):
  source = imagenet.folder(tmp_path / "source")
  command = ("-m", "mnemonics_jax.data.prepare", "--dataset=imagenet")
  flags = f"--source={source}", f"--data_dir={tmp_path}", "--reduced"
  done = data_files.run_python(*command, *flags)
  assert done.returncode == 0, done.stderr
  assert "A part of imagenet (3 classes, 12 + 6 images, checked)" in done.stdout
  assert f"experiments.imagenet --full --data_dir={tmp_path}" in done.stdout
  done = data_files.run_python(*command, "--reduce=maybe")
  assert done.returncode == 2
  assert "reduce" in done.stderr and "Traceback" not in done.stderr
