"""With what and by which command a run is made."""

import importlib.metadata
from pathlib import Path
import subprocess
import sys

import pytest

from mnemonics_jax.runs import environment

ROOT = Path(__file__).parents[2]


def test_it_tells_what_it_takes_to_repeat_a_run():
  found = environment.environment()
  assert found["packages"]["jax"] == importlib.metadata.version("jax")
  assert found["devices"] == ["cpu"] and found["processes"] == 1
  assert found["created"].endswith("+00:00")


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
