"""What every command promises, whatever it does and whichever door leads to it.

`--help` says what it does; a mistake is one sentence with exit code 2 and leaves
nothing behind; signals, pipes and full disks end it with their own code.
"""

import errno
import importlib
import json
import os
from pathlib import Path
import re
import shlex
import signal
import subprocess
import sys
import time

from absl.flags import DEFINE_string, FlagValues
import pytest
from support import command
from support.command import Accepted, assert_refused

from experiments import flags as flags_lib
from experiments.__main__ import EXPERIMENTS, WITH_ARGUMENTS
from experiments.command import exit_code, session
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs.signals import Stopped

ROOT = Path(__file__).parents[2]
DOORS = pytest.mark.parametrize("script", [False, True], ids=["-m", "script"])
COMMANDS = pytest.mark.parametrize("name", EXPERIMENTS)

# Flags that a command has, and some of others that it does not have.
FLAGS = {
  "digits": {"method", "less_forget", "workdir", "devices"},
  "cifar": {"method", "data_dir", "download"},
  "imagenet": {"method", "subset", "full", "data_dir", "workers", "decoder"},
  "folder": {"method", "data", "image_size", "class_names", "name", "strict"},
  "learn": {"method", "dataset", "data_dir", "download"},
  "tables": {"table", "dataset", "rows", "root", "epochs", "data_dir"},
  "report": {"output"},
  "predict": {"top", "csv", "confusion", "seed", "phase"},
  "export": {"to", "seed", "phase"},
  "publish": set(),
  "extend": {"data", "workdir", "phases", "val_fraction", "checkpoint_every"},
  "cache": {"clear"},
}
OTHERS = {
  "digits": {"data_dir", "table", "output", "dataset"},
  "cifar": {"image_size", "table", "output"},
  "imagenet": {"data", "download", "dataset", "table"},
  "folder": {"data_dir", "table", "output"},
  "learn": {"data", "strict", "table", "output"},
  # Its rows or --root decide these.
  "tables": {"workdir", "fresh", "method", "exemplars", "output"},
  "report": {"method", "workdir", "devices"},
  "predict": {"method", "workdir", "to"},
  "export": {"method", "workdir", "top"},
  "publish": {"method", "workdir", "to"},
  "extend": {"method", "epochs", "coordinator", "seed", "to"},
  "cache": {"method", "workdir", "devices"},
}


# Every command, by both doors.


@COMMANDS
@DOORS
def test_help_shows_its_words_and_flags(tmp_path, name, script):
  done = command.call(name, "--help", cwd=tmp_path, script=script)
  place = "tables.__main__" if name == "tables" else name  # It is a package.
  doc = importlib.import_module(f"experiments.{place}").__doc__ or ""
  assert f"python -m experiments.{name}" in doc
  for line in filter(None, map(str.strip, doc.splitlines())):
    assert line in done.out
  shown = set(re.findall(r"^  --(?:\[no\])?(\w+)", done.out, re.M))
  assert FLAGS[name] <= shown and not OTHERS[name] & shown
  assert (done.code, done.err, done.files) == (0, "", [])


@COMMANDS
@DOORS
def test_a_flag_of_others_is_none_of_its_own(tmp_path, name, script):
  for flag in ("nosuchflag", sorted(OTHERS[name])[0]):
    done = command.call(name, f"--{flag}=1", cwd=tmp_path, script=script)
    assert_refused(done, f"--{flag}")
    assert len(done.err.splitlines()) == 1


@COMMANDS
def test_arguments_are_refused_where_none_are_taken(tmp_path, name):
  done = command.call(name, "stray", cwd=tmp_path)
  said = "'stray' is not a flag" if name not in WITH_ARGUMENTS else ""
  assert_refused(done, said)


def test_no_help_waits_for_jax():
  """Nor does a mistake in the flags."""
  code = f"""
import contextlib, io, runpy, sys
for name in {EXPERIMENTS}:
  for flag in ("--help", "--nosuchflag=1"):
    sys.argv = [name, flag]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
      runpy.run_module(f"experiments.{{name}}", run_name="__main__")
    assert not {{"jax", "flax", "matplotlib"}} & {{*sys.modules}}, name
"""
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  assert done.stderr.count("is not a flag") == len(EXPERIMENTS)


@pytest.mark.parametrize(
  "given, code, said",
  [
    ([], 2, "usage: mnemonics-jax {digits|cifar|imagenet|folder"),
    (["--help"], 0, "usage: mnemonics-jax {digits|"),
    (["cifr"], 2, "there is no command 'cifr'; did you mean cifar?"),
    (["zzz"], 2, "error: there is no command 'zzz'; \nusage"),
  ],
)
def test_a_command_that_is_none(monkeypatch, capsys, given, code, said):
  from experiments import __main__ as door

  monkeypatch.setattr(sys, "argv", ["mnemonics-jax", *given])
  with pytest.raises(SystemExit) as stop:
    door.main()
  out, err = capsys.readouterr()
  assert stop.value.code == code
  assert said in (err if code else out)


RUN = (
  "--preset=smoke", "--images_per_class=8", "--base_classes=2", "--phases=1",
  "--memory=per_class:2", "--exemplars=herding", "--workdir=a b",
)  # fmt: skip


@DOORS
def test_a_command_can_be_typed_again(tmp_path, script):
  """Whatever ends it: directories are claimed before anything is trained."""
  with pytest.raises(Accepted):
    command.call("digits", *RUN, cwd=tmp_path, script=script)
  config = json.loads((tmp_path / "a b" / "config.json").read_text())
  python, _, module, *flags = shlex.split(config["command"])
  assert (python, module, tuple(flags)) == ("python", "experiments.digits", RUN)
  asked = "--table=2", "--rows=herding", "--phases=1"
  with pytest.raises(Accepted):
    command.call("tables", *asked, cwd=tmp_path, script=script)
  (path,) = (tmp_path / "runs" / "tables").glob("*.json")
  expected = shlex.join(["python", "-m", "experiments.tables", *asked])
  assert json.loads(path.read_text())["commands"] == [expected]


def test_flags_may_stand_in_a_file(tmp_path):
  (tmp_path / "flags").write_text("\n".join(["# Mine.", *RUN]))
  with pytest.raises(Accepted):
    command.call("digits", "--flagfile=flags", "--seeds=7", cwd=tmp_path)
  config = json.loads((tmp_path / "a b" / "config.json").read_text())
  assert config["settings"]["seeds"] == [7]
  assert config["settings"]["images_per_class"] == 8


def test_a_cache_is_listed_and_removed_with_nothing_else(tmp_path):
  kept = tmp_path / "cache" / "mnemonics_jax" / "xla"
  kept.mkdir(parents=True)
  (kept / "program").write_bytes(b"x" * 1_500_000)
  (tmp_path / "cache" / "of_others").write_text("precious")
  shown = command.call("cache", cwd=tmp_path)
  assert not shown.code and "xla" in shown.out and "1.5 MB" in shown.out
  assert kept.exists()
  removed = command.call("cache", "--clear", cwd=tmp_path)
  assert not removed.code and removed.out.endswith("Removed.\n")
  assert not kept.exists()
  assert (tmp_path / "cache" / "of_others").exists()
  assert "0.0 MB" in command.call("cache", "--clear", cwd=tmp_path).out


# How a command ends.


def _run(monkeypatch, main, *arguments, **options):
  """The exit code of a command that does what `main` does."""
  monkeypatch.setattr(sys, "argv", ["command", *arguments])
  values = flags_lib.of_run("digits")
  with pytest.raises(SystemExit) as stop, session("", values, **options):
    main()
    sys.exit(0)
  return stop.value.code


def _raise(error):
  def main():
    raise error

  return main


def _full(number, name):
  return OSError(number, os.strerror(number), name)


def _advice(number, advice):
  return _full(number, "that"), 2, (
    f"error: that cannot be written ({os.strerror(number)}). What is saved is"
    f" safe; {advice} and repeat the command to continue.\n"
  )  # fmt: skip


ENDS = {
  "mistake": (
    UserError("phases", "`phases=0` is none", "use 1"),
    *(2, "error: --phases=0 is none; use 1.\n"),
  ),
  "interrupted": (KeyboardInterrupt(), 130, "\nStopped.\n"),
  "stopped": (
    Stopped(143),
    *(143, "Stopped and saved. Run it again to continue from there.\n"),
  ),
  "full disk": _advice(errno.ENOSPC, "make room there"),
  "many files": _advice(errno.EMFILE, "allow more open files (ulimit -n)"),
  "large files": _advice(errno.EFBIG, "allow larger files (ulimit -f)"),
  "read-only": _advice(errno.EROFS, "see to it that it can be written"),
}


@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_its_code_and_sentence(monkeypatch, capsys, name):
  error, code, said = ENDS[name]
  assert _run(monkeypatch, _raise(error)) == code
  assert capsys.readouterr().err == said


def test_a_bug_is_no_mistake_of_the_user(monkeypatch):
  monkeypatch.setattr(sys, "argv", ["command"])
  for bug in (ZeroDivisionError(), OSError(errno.ECHILD, "broken")):
    with pytest.raises(type(bug)), session("", FlagValues()):
      raise bug


def test_exit_codes_of_processes_that_fail_together():
  error = UserError("devices", "none", "add one")
  codes = map(exit_code, (error, KeyboardInterrupt(), ValueError()))
  assert [*codes] == [2, 130, 1]


def _kill():
  os.kill(os.getpid(), signal.SIGTERM)
  time.sleep(5)


class _Dropping:
  """Python drops exceptions of a destructor."""

  def __del__(self):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0)


def _kill_in_a_destructor():
  _Dropping()
  time.sleep(5)


@pytest.mark.parametrize("kill", [_kill, _kill_in_a_destructor])
def test_a_signal_ends_it_where_no_run_listens(monkeypatch, capsys, kill):
  before = signal.getsignal(signal.SIGTERM), sys.unraisablehook
  assert _run(monkeypatch, kill) == 143
  assert capsys.readouterr().err == "\nStopped.\n"
  assert (signal.getsignal(signal.SIGTERM), sys.unraisablehook) == before


def _shell(code: str, streams: str, cwd: Path) -> subprocess.CompletedProcess:
  """Runs a command whose streams a shell has changed."""
  program = (
    "import os, sys\nfrom absl.flags import FlagValues\n"
    "from experiments import command\n"
    f"with command.session('doc', FlagValues()):\n  {code}\n"
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


def test_help_survives_a_reader_who_leaves():
  done = subprocess.run(
    ["bash", "-c", f"{sys.executable} -m experiments.digits --help | head -1"],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert done.stdout.startswith("Class-incremental") and not done.stderr


def test_a_pipe_that_nobody_reads_ends_it_quietly(tmp_path):
  code = "[print('x' * 1000) for _ in range(1000)]"
  done = _shell(code, "| head -1 > /dev/null; exit ${PIPESTATUS[0]}", tmp_path)
  assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("asked", ["", "--help"])
def test_a_full_place_for_what_is_printed_is_one_sentence(tmp_path, asked):
  # Little enough to be written at the end.
  done = _shell("print('x' * 100)", f"{asked} > /dev/full", tmp_path)
  assert done.returncode == 2
  assert done.stderr.startswith("error: A file cannot be written (No space")
  assert done.stderr.count("\n") == 1


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


# What the library says of its settings, said of flags.

SHOWN = {
  "`memory` is missing": "--memory is missing",
  "use `memory=total:5`.": "use --memory=total:5.",
  '`workdir=/my runs/it\'s "new"` is': '--workdir=/my runs/it\'s "new" is',
  "`workdir=a=b=c`, `fresh`": "--workdir=a=b=c, --fresh",
  "`workdir=two\nlines`": "--workdir=two\nlines",
  "`phases=`": "--phases=",
  "no effect with `noadjust`": "no effect with --noadjust",
  # Of the library's settings some have a flag of another name.
  "`every=-1` is": "--checkpoint_every=-1 is",
  "`network` and `data_dir=/x` has": "--net and --data=/x has",
  # What is no flag stays as it is.
  "`inner_lr` and `inner_lr=3`": "`inner_lr` and `inner_lr=3`",
  "`memory policy` and memory=3": "`memory policy` and memory=3",
  "`Memory`, ``, `=3`, `memory": "`Memory`, ``, `=3`, `memory",
}


@pytest.mark.parametrize("message", SHOWN)
def test_settings_are_shown_as_flags(message):
  values = flags_lib.of_run("folder")
  DEFINE_string("data", None, "", flag_values=values)
  assert flags_lib.in_flags(message, values) == SHOWN[message]


def test_a_flag_of_the_same_name_comes_first():
  cifar = flags_lib.of_run("cifar100")
  assert flags_lib.in_flags("`data_dir=/x`", cifar) == "--data_dir=/x"
