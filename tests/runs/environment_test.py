"""With what and by which command a run is made."""

import importlib.metadata
import json
import os
from pathlib import Path
import platform
import subprocess
import sys
import threading
import types

import jax
import pytest
from support import interrupted

from mnemonics_jax import cpu_conv
from mnemonics_jax.cpu_conv import calls
from mnemonics_jax.errors import UserError
from mnemonics_jax.parallel import processes
from mnemonics_jax.runs import artifact, environment

ROOT = Path(__file__).parents[2]


def test_it_tells_what_it_takes_to_repeat_a_run():
  found = environment.environment()
  assert found["packages"]["jax"] == importlib.metadata.version("jax")
  assert found["devices"] == ["cpu"] and found["processes"] == 1
  assert found["created"].endswith("+00:00")


@pytest.mark.parametrize(
  "lines, name",
  [
    ("model name\t: Xeon\nflags\t: fma\nmodel name\t: Xeon\n", ", Xeon"),
    ("processor\t: 0\n", ""),  # As on ARM.
  ],
)
def test_a_machine_is_called_by_its_processor(monkeypatch, lines, name):
  monkeypatch.setattr(Path, "read_text", lambda *_, **__: lines)
  monkeypatch.setattr(platform, "system", lambda: "Linux")
  monkeypatch.setattr(platform, "machine", lambda: "x86_64")
  found = environment.environment()["machine"]
  assert found == f"Linux x86_64{name}"


def test_only_what_may_change_numbers_is_told():
  began = environment.environment()
  assert environment.changes_since(began) is None
  assert environment.changes_since({}) is None
  began["packages"] |= {"numpy": "0.1", "absl-py": "0.1"}
  assert environment.changes_since(began) is None
  began["packages"]["flax"] = "0.0.1"
  began["devices"] = ["TPU v4"] * 4
  text = environment.changes_since(began)
  assert text == (
    "since this run began, flax is now"
    f" {importlib.metadata.version('flax')}, was 0.0.1, it runs on other"
    " devices: last digits may differ."
  )


def test_cores_that_may_be_used_count(monkeypatch):
  """XLA cuts sums into as many parts, which may change their last digits."""
  monkeypatch.setattr(
    os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False
  )
  began = environment.environment()
  assert began["cores"] == 3
  assert environment.changes_since(began | {"cores": 8}) == (
    "since this run began, cores are now 3, were 8: last digits may differ."
  )
  # Those of a host compute nothing.
  device = types.SimpleNamespace(device_kind="TPU v4")
  monkeypatch.setattr(jax, "devices", lambda: [device])
  began = environment.environment()
  assert environment.changes_since(began | {"cores": 8}) is None


def git(*arguments, cwd):
  identity = ["-c", "user.name=n", "-c", "user.email=e"]
  done = subprocess.run(
    ["git", *identity, *arguments],
    cwd=cwd, check=True, capture_output=True, text=True,
  )  # fmt: skip
  return done.stdout.strip()


@pytest.fixture
def package(tmp_path, monkeypatch):
  """A copy of the package's outline, below no repository."""
  package = tmp_path / "repository" / "mnemonics_jax"
  (package / "runs").mkdir(parents=True)
  (package / "package.py").write_text("")
  monkeypatch.setattr(
    environment, "__file__", str(package / "runs" / "environment.py")
  )
  monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
  environment._commit.cache_clear()
  yield package
  environment._commit.cache_clear()


def test_the_commit_is_told_and_whether_the_code_differs_from_it(package):
  repository = package.parent
  git("init", "-q", cwd=repository)
  git("add", ".", cwd=repository)
  git("commit", "-qm", "Begin", cwd=repository)
  commit = git("rev-parse", "HEAD", cwd=repository)

  def told():
    """By a process that is started now."""
    environment._commit.cache_clear()
    found = environment.environment()
    return [found[name] for name in ("git_commit", "git_dirty")]

  assert told() == [commit, False]
  (repository / "notes.md").write_text("")  # This changes no number...
  assert told() == [commit, False]
  (package / "new.py").write_text("")  # ... and this might.
  assert told() == [commit, True]
  git("add", ".", cwd=repository)
  git("commit", "-qm", "Go on", cwd=repository)
  # One that was started before has not loaded that.
  began = environment.environment()
  assert [began["git_commit"], began["git_dirty"]] == [commit, True]
  (package / "package.py").write_text("# Changed.")
  later = told()
  assert later[0] != commit and later[1] is True
  assert environment.changes_since(began) == (
    f"since this run began, the code is now commit {later[0]} with uncommitted"
    f" changes, was commit {commit} with uncommitted changes: last digits may"
    " differ."
  )


def test_without_a_repository_of_its_own_there_is_no_commit(package):
  assert environment.environment()["git_commit"] is None
  environment._commit.cache_clear()
  # Installed into an environment that lies in somebody else's repository.
  git("init", "-q", cwd=package.parent)
  (package.parent / "theirs").write_text("")
  git("add", "theirs", cwd=package.parent)
  git("commit", "-qm", "Theirs", cwd=package.parent)
  found = environment.environment()
  assert found["git_commit"] is None and found["git_dirty"] is None
  assert environment.code(found) == (
    f"version {importlib.metadata.version('mnemonics_jax')}"
  )


SHOW = "from mnemonics_jax.runs.environment import command; print(command())"


@pytest.mark.parametrize(
  "typed",
  [
    ["my_run.py", "--title=two words"],
    ["-m", "my_run", "--epochs=1"],
    ["-m", "package", "x"],
    ["-m", "package.part"],
  ],
)
def test_the_command_is_the_one_that_was_typed(tmp_path, typed):
  (tmp_path / "package").mkdir()
  for name in ("my_run", "package/__main__", "package/part"):
    (tmp_path / f"{name}.py").write_text(SHOW)
  done = subprocess.run(
    [sys.executable, *typed],
    cwd=tmp_path,
    env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )
  expected = " ".join(["python", *typed]).replace(
    "--title=two words", "'--title=two words'"
  )
  assert done.stdout.strip() == expected, done.stderr


@pytest.fixture
def use(monkeypatch):
  """Lets this process claim to use certain convolutions."""

  def use(name, note=None):
    made_up = types.SimpleNamespace(
      VARIABLE=cpu_conv.VARIABLE,
      choose=lambda: cpu_conv.Choice(name),
      news=lambda: note,
    )
    monkeypatch.setattr(environment, "cpu_conv", made_up)

  return use


def test_accelerators_leave_them_to_xla(use, monkeypatch):
  use("native-1", "news")
  assert environment.kernels() == "native-1"
  monkeypatch.setattr("jax.default_backend", lambda: "tpu")
  assert environment.kernels() == "xla" and environment.kernel_news() is None


def test_a_note_is_said_once(monkeypatch):
  made_up = cpu_conv.Choice("xla", "no compiler")
  monkeypatch.setattr(calls, "choose", lambda: made_up)
  monkeypatch.setattr(calls, "_SAID", threading.Event())
  assert [environment.kernel_news(), environment.kernel_news()] == [
    "no compiler",
    None,
  ]


def test_the_environment_tells_and_compares_them(use):
  use("native-1")
  began = environment.environment()
  assert began["convolutions"] == "native-1"
  assert environment.changes_since(began) is None
  use("xla")
  assert environment.changes_since(began) == (
    "since this run began, convolutions are now xla, were native-1: last digits"
    " may differ."
  )
  del began["convolutions"]  # A run of an earlier version.
  assert environment.changes_since(began) is None


def test_a_run_that_goes_on_with_others_says_so(use, tmp_path, capsys):
  use("native-1", "kernels were compiled")
  models, workdir = tmp_path / "models", tmp_path / "run"
  assert not interrupted.run_until(workdir, 6, base_models=models)
  assert "Note: kernels were compiled" in capsys.readouterr().out
  config = json.loads((workdir / "config.json").read_text())
  assert config["environment"]["convolutions"] == "native-1"
  made = sorted((workdir / "seed_0" / "checkpoints").glob("phase_*"))
  assert made
  for path in made:
    assert artifact.restore(path)[1]["convolutions"] == "native-1"

  use("xla")
  assert not interrupted.run_until(workdir, 2, base_models=models)
  said = capsys.readouterr().out
  change = "convolutions are now xla, were native-1"
  assert f"Note: since this run began, {change}: last digits may differ" in said
  assert f"Since this checkpoint was made, {change}: bits differ" in said
  # It was begun with the first ones, the checkpoint is from the second.
  use("native-1")
  assert not interrupted.run_until(workdir, 1, base_models=models)
  said = capsys.readouterr().out
  assert "since this run began" not in said
  assert "convolutions are now native-1, were xla: bits differ" in said


def test_a_base_model_made_with_others_is_told(use, tmp_path, capsys):
  models = tmp_path / "models"
  use("native-1")
  made = lambda: list(models.glob("*"))
  assert not interrupted.run_until(tmp_path / "a", made, base_models=models)
  use("xla")
  capsys.readouterr()
  interrupted.run_until(tmp_path / "b", 1, base_models=models)
  said = capsys.readouterr().out
  assert "was trained, convolutions are now xla, were native-1: bits" in said


def test_processes_must_agree(use, monkeypatch):
  use("native-1")
  environment.check_processes()
  monkeypatch.setattr(processes, "all_equal", lambda value: False)
  with pytest.raises(UserError, match="MNEMONICS_CPU_CONV=xla on all"):
    environment.check_processes()
