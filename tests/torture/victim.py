"""A run that is attacked: started, ended, harmed, and compared in the end."""

import contextlib
import os
from pathlib import Path
import shutil
import signal
import socket
import subprocess
import sys
import time

from support import compilations
from torture.schedules import Attack, Run

ROOT = Path(__file__).parents[2]
_SECONDS = 900  # For the slowest start of all.
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_WORDS = ("Checkpoint", "Continuing")


class Failed(AssertionError):
  """A promise was not kept."""


class Victim:
  """A run in a directory that may be attacked between and during its starts.

  Args:
    run: its kind.
    home: where its directory is.
    caches: what all runs share.
    small: whether `home` is a file system that can be filled.

  Attributes:
    workdir: its directory now.
    exact: whether it has to end with the bits of a run that was left alone.
    harmed: files that were damaged between two starts.
    refused: how often it has refused to go on, in a sentence.
  """

  def __init__(self, run: Run, home: Path, caches: Path, small: bool):
    self.run, self.home, self.caches, self.small = run, home, caches, small
    self.workdir = home / "run"
    self.exact, self.harmed, self.refused = True, set(), 0
    self.devices, self.stream = 1, run.stream
    home.mkdir(parents=True, exist_ok=True)

  def start(self, limit: int | None = None) -> list[subprocess.Popen]:
    """Its processes; `limit` is the largest file that they may write."""
    compilations.share_kernels(self.caches)
    command = [sys.executable, "-m", "experiments.digits", *self.run.flags]
    command += [f"--workdir={self.workdir}", f"--stream={self.stream}"]
    count, several = self.run.processes, []
    if count == 1:
      command += [f"--devices={self.devices}"]
    else:
      with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
      several = [f"--coordinator=localhost:{port}", f"--num_processes={count}"]
    environment = os.environ | {
      "PYTHONPATH": str(ROOT),
      "XDG_CACHE_HOME": str(self.caches),
      "JAX_PLATFORMS": "cpu",
    }
    if limit:  # In units of a kilobyte.
      shell = f'ulimit -f {limit // 1024 + 1}; exec "$@"'
      command = ["bash", "-c", shell, "bash", *command]
    return [
      subprocess.Popen(
        command + several + ([f"--process_id={i}"] if several else []),
        cwd=self.home,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
      )
      for i in range(count)
    ]

  def finish(self) -> str:
    """Lets it run to its end, and says what it said."""
    processes = self.start()
    output = self._end(processes)
    if self._code(processes) == 2 and self.harmed:
      # It has refused what was damaged, and says what to do.
      self._check_sentence(output)
      self.refused += 1
      self._restore()
      processes = self.start()
      output = self._end(processes)
    self._expect(processes, output, {0})
    return output

  def suffer(self, attack: Attack) -> None:
    """What the attack says happens to it."""
    getattr(self, "_" + attack.kind.replace(" ", "_"))(attack)

  # Attacks.

  def _kill(self, attack):
    processes = self._reach(attack)
    whom = [processes, *([p] for p in processes)]
    for process in whom[int(attack.which * len(whom))]:
      process.kill()
    self._end(processes, patience=240)

  def _signal(self, attack):
    processes = self._reach(attack)
    number = _SIGNALS[int(attack.which * 2)]
    processes[int(attack.which * 7) % len(processes)].send_signal(number)
    output = self._end(processes)
    if attack.line:  # Before, it may be importing.
      self._expect(processes, output, {0, 128 + number, *self._refusals()})
      if self._code(processes) == 128 + number and "Stopped" not in output:
        raise Failed(f"It did not say that it has stopped:\n{output}")

  def _full_disk(self, attack):
    room = int(attack.which**2 * 3_000_000)
    if self.small:
      ballast = self.home / "ballast"
      free = os.statvfs(self.home)
      size = free.f_bavail * free.f_frsize - room
      with contextlib.suppress(OSError), ballast.open("wb", 0) as file:
        for _ in range(max(size, 0) // 4096):
          file.write(bytes(4096))
      processes = self.start()
    else:
      processes = self.start(limit=1000 + room // 4)
    output = self._end(processes)
    if self.small:
      ballast.unlink(missing_ok=True)
    self._expect(processes, output, {0, 2})
    if self._code(processes) == 2:
      self._check_sentence(output)

  def _damage(self, attack):
    found = sorted(
      path
      for path in self.workdir.rglob("*")
      if path.is_file() and path.name not in ("lock", "report.html")
      and not {"tensorboard", "figures"} & {*path.parts}
    )  # fmt: skip
    if not found:
      return
    path = found[int(attack.which * len(found))]
    content = path.read_bytes()
    place = self.home / "before" / path.relative_to(self.workdir)
    if not place.exists():
      place.parent.mkdir(parents=True, exist_ok=True)
      place.write_bytes(content)
    middle = int(len(content) * attack.delay / 4)
    harmed = {
      "flip": content[:middle] + bytes([content[middle] ^ 1 if content else 0])
      + content[middle + 1 :],
      "truncate": content[:middle],
      "empty": b"",
      "zeros": bytes(len(content)),
    }  # fmt: skip
    path.unlink() if attack.how == "delete" else path.write_bytes(
      harmed[attack.how]
    )
    self.harmed.add(str(path.relative_to(self.workdir)))

  def _move(self, attack):
    names = ("moved", "run[1]", "a run", "zurück*", "back\\slash")
    there = self.home / names[int(attack.which * len(names))]
    if self.workdir.exists() and not there.exists():
      self.workdir.rename(there)
      self.workdir = there

  def _devices(self, _):
    self.devices = 3 - self.devices
    self.exact = False

  def _stream(self, _):
    self.stream = {"always": "never", "never": "always"}[self.stream]

  # What it does.

  def _reach(self, attack):
    """A start that has come to the place of an attack, or ended before."""
    processes = self.start()
    for _ in range(attack.line):
      for line in processes[0].stdout:
        if line.startswith(_WORDS):
          break
    time.sleep(attack.delay)
    return processes

  def _end(self, processes, patience=_SECONDS):
    texts = []
    for process in processes:
      try:
        texts.append(process.communicate(timeout=patience)[0])
      except subprocess.TimeoutExpired:
        process.kill()
        text = process.communicate()[0]
        if patience == _SECONDS:
          raise Failed(f"It did not end:\n{text}") from None
        texts.append(text)
    return texts[0]

  def _code(self, processes):
    return processes[0].returncode

  def _refusals(self):
    return {2} if self.harmed else set()

  def _expect(self, processes, output, codes):
    code = self._code(processes)
    if code not in codes or "Traceback" in output:
      raise Failed(f"It ended with {code}, not one of {codes}:\n{output}")
    if code == 2 and self.harmed and 2 in self._refusals():
      self._check_sentence(output)
      self.refused += 1
      self._restore()

  def _check_sentence(self, output):
    errors = [s for s in output.splitlines() if s.startswith("error: ")]
    if len(errors) != 1 or output.splitlines()[-1] != errors[0]:
      raise Failed(f"That is not one sentence:\n{output}")
    if "ulimit" in errors[0] or "make room" in errors[0]:
      return
    if not self.harmed:
      raise Failed(f"It refused what was whole:\n{output}")

  def _restore(self):
    """Puts back what was damaged, which is what it has asked for."""
    before = self.home / "before"
    for path in sorted(before.rglob("*")) if before.exists() else []:
      if path.is_file():
        to = self.workdir / path.relative_to(before)
        if to.parent.exists():  # A checkpoint may have been replaced since.
          shutil.copy(path, to)
    shutil.rmtree(before, ignore_errors=True)
