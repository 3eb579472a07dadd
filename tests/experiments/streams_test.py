"""How a command ends when the world around it is not as it should be."""

import errno
import os
from pathlib import Path
import subprocess
import sys

import pytest
from support import command

ROOT = Path(__file__).parents[2]


def _shell(code: str, streams: str, cwd: Path) -> subprocess.CompletedProcess:
  """Runs `main` of a command whose streams a shell has changed."""
  program = (
    "import os, sys\nfrom experiments import command\ndef main(_):\n"
    f"  {code}\ncommand.run(main)"
  )
  (cwd / "program.py").write_text(program)
  return subprocess.run(
    ["bash", "-c", f"{sys.executable} program.py {streams}"],
    cwd=cwd,
    env=os.environ | {"PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_gets_the_number_of_a_closed_stream(tmp_path, streams):
  """What libraries print would be written into it."""
  code = (
    "file = open('out', 'w'); file.write(str(file.fileno()));"
    " print('x', sys.stdout.isatty(), sys.stderr.isatty(), sys.stdin.read())"
  )
  done = _shell(code, streams, tmp_path)
  assert done.returncode == 0, done
  assert int((tmp_path / "out").read_text()) > 2


def test_a_pipe_that_nobody_reads_ends_it_quietly(tmp_path):
  code = "[print('x' * 1000) for _ in range(1000)]"
  done = _shell(code, "| head -1 > /dev/null; exit ${PIPESTATUS[0]}", tmp_path)
  assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("asked", ["", "--help"])
def test_a_full_place_for_what_is_printed_is_one_sentence(tmp_path, asked):
  code = "print('x' * 100_000)"
  done = _shell(code, f"{asked} > /dev/full", tmp_path)
  assert done.returncode == 2
  assert done.stderr.startswith("error: A file cannot be written (No space")
  assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
  "number, advice",
  [
    (errno.ENOSPC, "make room there"),
    (errno.EMFILE, "allow more open files (ulimit -n)"),
    (errno.EFBIG, "allow larger files (ulimit -f)"),
    (errno.EROFS, "see to it that it can be written"),
  ],
)
def test_the_advice_is_that_of_the_trouble(tmp_path, number, advice):
  code = f"raise OSError({number}, os.strerror({number}), 'that')"
  done = _shell(code, "", tmp_path)
  assert done.returncode == 2
  assert done.stderr == (
    f"error: that cannot be written ({os.strerror(number)}). What is saved is"
    f" safe; {advice} and repeat the command to continue.\n"
  )


def test_a_full_disk_is_no_reason_to_start_over(tmp_path, monkeypatch):
  def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr("mnemonics_jax.runs.claim.write", full)
  done = command.call("digits", "--preset=smoke", "--workdir=x", cwd=tmp_path)
  assert done.code == 2
  assert done.err == (
    "error: --workdir=x cannot be used (No space left on device); make room"
    " there, or choose another one.\n"
  )
