"""Which convolutions made a run is kept, and a change of them is told."""

import json
import threading
import types

import pytest
from support import interrupted

from mnemonics_jax import cpu_conv
from mnemonics_jax.cpu_conv import calls
from mnemonics_jax.errors import UserError
from mnemonics_jax.parallel import processes
from mnemonics_jax.runs import checkpoint, convolutions, environment


@pytest.fixture
def use(monkeypatch):
  """Lets this process claim to use certain convolutions."""

  def use(name, note=None):
    made_up = types.SimpleNamespace(
      VARIABLE=cpu_conv.VARIABLE,
      choose=lambda: cpu_conv.Choice(name),
      news=lambda: note,
    )
    monkeypatch.setattr(convolutions, "cpu_conv", made_up)

  return use


def test_accelerators_leave_them_to_xla(use, monkeypatch):
  use("native-1", "news")
  assert convolutions.used() == "native-1"
  monkeypatch.setattr("jax.default_backend", lambda: "tpu")
  assert convolutions.used() == "xla" and convolutions.news() is None


def test_a_note_is_said_once(monkeypatch):
  made_up = cpu_conv.Choice("xla", "no compiler")
  monkeypatch.setattr(calls, "choose", lambda: made_up)
  monkeypatch.setattr(calls, "_SAID", threading.Event())
  assert [convolutions.news(), convolutions.news()] == ["no compiler", None]


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
    assert checkpoint.restore(path)[1]["convolutions"] == "native-1"

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
  convolutions.check_processes()
  monkeypatch.setattr(processes, "all_equal", lambda value: False)
  with pytest.raises(UserError, match="MNEMONICS_CPU_CONV=xla on all"):
    convolutions.check_processes()
