"""Checkpoints of a seed: after every phase, and every few minutes within one.

  seed_0/checkpoints/phase_02           the state after phase 2
  seed_0/checkpoints/phase_03_part_007  how far phase 3 has come since then

A part rests on the phase before it. Computations are repeatable, so what is not
in a checkpoint comes out the same when it is done again.
"""

from collections.abc import Callable
from pathlib import Path
import re
import shutil
import time
from typing import Any, NamedTuple
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from experiments.settings import DiskError, UserError
from experiments.stopping import Stop
from mnemonics_jax import checkpoint, devices
from mnemonics_jax import memory as memory_lib
from mnemonics_jax.journal import Journal
from mnemonics_jax.report import MetricsLog
from mnemonics_jax.types import PhaseState, PyTree, StepReport

# Parts of the running phase that are kept: the newest, and one to fall back on.
_PARTS = 2


class Policy(NamedTuple):
  """When to save and what to keep.

  Attributes:
    every: seconds between checkpoints within a phase.
    keep: how many checkpoints of phases to keep, None for all.
  """

  every: float = 180.0
  keep: int | None = None


class Clock:
  """A `Report` that counts the seconds of each stage of a phase.

  Attributes:
    stage: the running one.
  """

  def __init__(self):
    self.restart({})

  def restart(self, seconds: dict[str, float]) -> None:
    """Goes on from these counts."""
    self._seconds, self.stage = dict(seconds), None
    self._since = time.monotonic()

  def __call__(self, step: StepReport) -> None:
    self.read()
    self.stage = step.stage

  def read(self) -> dict[str, float]:
    """The counts until now."""
    now = time.monotonic()
    if self.stage is not None:
      spent = self._seconds.get(self.stage, 0.0) + now - self._since
      self._seconds[self.stage] = spent
    self._since = now
    return dict(self._seconds)


class Saver(Journal):
  """The journal of one seed's phases, kept on disk.

  Args:
    seed: its number.
    directory: where its checkpoints are.
    policy: when to save and what to keep.
    log: the metrics; they go back to where a checkpoint was made.
    stop: asked at every opportunity to save.
    say: receives what a person should know.

  Attributes:
    directory: see above.
    clock: durations of the running phase; wants to hear its reports.
  """

  def __init__(
    self,
    seed: int,
    directory: Path,
    policy: Policy,
    log: MetricsLog,
    stop: Stop,
    say: Callable[[str], None],
  ):
    self.clock = Clock()
    self._seed, self.directory = seed, directory
    self._policy = policy
    self._log, self._stop, self._say = log, stop, say
    self._saved = time.monotonic()
    self._begin_phase(0)

  def _begin_phase(self, phase):
    self._phase = phase
    self._finished: dict[str, PyTree] = {}
    self._running: tuple[str | None, list[np.ndarray]] = None, []
    self.clock.restart({})

  @property
  def newest(self) -> str:
    """The last checkpoint, for a message."""
    names = self._phases() + self._parts()
    return str(self.directory / names[-1]) if names else "none yet"

  def restore(
    self, begin: PhaseState
  ) -> tuple[PhaseState, list[dict[str, Any]]]:
    """The newest state, with the records of the phases before it.

    Args:
      begin: the state of a run that has not begun.
    """
    self.directory.mkdir(parents=True, exist_ok=True)
    for draft in self.directory.glob("*.partial-*"):  # A kill left it.
      shutil.rmtree(draft)
    damaged: list[checkpoint.Damaged] = []
    state, records, log_size = begin, [], None
    if found := self._newest_good(self._phases(), damaged):
      tree, info = found
      state = _unpack(begin, tree, info)
      records, log_size = info["records"], info["log"]
    self._begin_phase(state.phase)
    found = self._newest_good(self._parts(state.phase), damaged)
    elsewhere = bool(found) and found[1]["devices"] != devices.count()
    if found and elsewhere:
      self._say(
        f"The checkpoint within phase {state.phase} was made on"
        f" {found[1]['devices']} devices; the phase begins again."
      )
    elif found:
      tree, info = found
      leaves = tree.get("running", {})
      self._finished = tree.get("finished", {})
      self._running = info["stage"], [leaves[name] for name in sorted(leaves)]
      self.clock.restart(info["seconds"])
      log_size = info["log"]
    if damaged and log_size is None and not elsewhere:
      raise UserError(
        f"{damaged[0]}, and there is no older checkpoint. Add --fresh to start"
        " over in a new directory."
      )
    if log_size is None:
      log_size = self._log.start_of(self._seed)
    else:
      self._say(
        f"Continuing seed {self._seed} in phase {state.phase}{self._stage()}."
      )
    self._log.truncate(log_size)
    for error in damaged:
      aside = error.path.with_name(f"damaged_{error.path.name}")
      shutil.rmtree(aside, ignore_errors=True)
      error.path.rename(aside)
      self._say(f"{error}. It is now {aside.name}, and an older one is used.")
    if elsewhere:  # They know where the log ended, and it will be another one.
      for name in self._parts(state.phase):
        shutil.rmtree(self.directory / name)
    stage = self._running[0] or ""
    if not devices.same(zlib.crc32(f"{state.phase} {stage}".encode()) >> 1):
      raise UserError(
        f"--workdir: the processes see different checkpoints in {self.directory};"
        " it must be on a disk that all machines see."
      )
    self._prune()  # Parts of a later phase rest on what is no longer there.
    return state, records

  def _newest_good(self, names, damaged):
    """The first checkpoint that can be read, from the last; notes the others."""
    for name in reversed(names):
      try:
        return checkpoint.restore(self.directory / name)
      except checkpoint.Damaged as error:
        damaged.append(error)
      except OSError as error:
        raise DiskError(
          f"{self.directory / name} cannot be read now ({error}). Nothing was"
          " changed; repeat the command when the disk answers, or with the Orbax"
          " that wrote it."
        ) from error
    return None

  # The journal of the running phase.

  def once(self, stage: str, compute: Callable[[], PyTree]) -> PyTree:
    if stage not in self._finished:
      self._finished[stage] = jax.tree.map(np.asarray, compute())
      self._save_if_due(None, [])
    return self._finished[stage]

  def started(self, stage: str) -> bool:
    return self._running[0] == stage

  def resume(self, stage: str, like: PyTree) -> PyTree | None:
    if not self.started(stage):
      return None
    stored = self._running[1]
    leaves, structure = jax.tree.flatten(like)
    pairs = zip(stored, leaves, strict=True)
    return jax.tree.unflatten(structure, [_as(*pair) for pair in pairs])

  def offer(self, stage: str, state: PyTree) -> None:
    self._save_if_due(stage, jax.tree.leaves(state))

  def _save_if_due(self, stage, leaves):
    waited = time.monotonic() - self._saved
    due = devices.agree(waited >= self._policy.every)
    if not due and not self._stop.agreed():
      return
    self._running = stage, []
    parts = self._parts(self._phase)
    number = int(parts[-1].rpartition("_")[2]) + 1 if parts else 0
    tree = {"running": {f"{i:05d}": x for i, x in enumerate(_plain(leaves))}}
    tree["finished"] = self._finished
    self._save(
      f"phase_{self._phase:02d}_part_{number:03d}",
      {name: part for name, part in tree.items() if part},
      {"stage": stage, "seconds": self.clock.read()},
      f"in phase {self._phase}{self._stage()}",
    )
    self._stop.obey()

  def _stage(self):
    """Where the running phase is, in words."""
    if self._running[0]:
      return f", stage {self._running[0]}"
    return "".join(f", after stage {name}" for name in [*self._finished][-1:])

  # The end of a phase.

  def end_phase(self, state: PhaseState, records: list[dict[str, Any]]) -> None:
    """Saves the state between two phases."""
    self._begin_phase(state.phase)
    info = {"classes_seen": state.classes_seen, "records": records}
    done = state.phase - 1
    self._save(f"phase_{done:02d}", _pack(state), info, f"after phase {done}")
    self._stop.obey()

  def _save(self, name, tree, info, where):
    began = time.monotonic()
    info = info | {
      "phase": self._phase,
      "log": self._log.sync(),
      "devices": devices.count(),
    }
    try:
      size = checkpoint.save(self.directory / name, tree, info)
    except OSError as error:
      raise DiskError(
        f"A checkpoint could not be written to {self.directory}"
        f" ({error.strerror or error}). The last good one is {self.newest};"
        " make room there and repeat the command to continue from it."
      ) from error
    self._prune()
    self._saved = time.monotonic()
    seconds = self._saved - began
    self._say(f"Checkpoint {where}: {size / 1e6:.1f} MB in {seconds:.1f} s.")

  def _prune(self):
    parts, current = self._parts(), self._parts(self._phase)[-_PARTS:]
    old = [name for name in parts if name not in current]
    if self._policy.keep is not None:
      old += self._phases()[: -self._policy.keep]
    for name in old:
      shutil.rmtree(self.directory / name, ignore_errors=True)

  def _phases(self):
    return self._list(r"phase_(\d+)")

  def _parts(self, phase=r"\d+"):
    number = f"{phase:02d}" if isinstance(phase, int) else phase
    return self._list(rf"phase_{number}_part_(\d+)")

  def _list(self, pattern):
    """Names of this form, by their number."""
    found = (re.fullmatch(pattern, p.name) for p in self.directory.glob("*"))
    found = [match for match in found if match]
    return [match[0] for match in sorted(found, key=lambda m: int(m[1]))]


def _is_key(leaf):
  return isinstance(leaf, jax.Array) and jnp.issubdtype(
    leaf.dtype, jax.dtypes.prng_key
  )


def _plain(leaves):
  """Arrays of a tree as they are stored."""
  return [
    np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    for leaf in leaves
  ]


def _as(stored, leaf):
  """What was stored of a leaf, as that kind of leaf."""
  if _is_key(leaf):
    return jax.random.wrap_key_data(jnp.asarray(stored))
  if isinstance(leaf, jax.Array):
    return devices.put(stored)
  return stored if isinstance(leaf, np.ndarray) else type(leaf)(stored)


def _pack(state):
  images, _ = memory_lib.flat(state.memory)
  return {
    "variables": state.variables,
    "memory": {"images": images, "counts": state.memory.counts},
    "key": jax.random.key_data(state.key),
  }


def _unpack(begin, tree, info):
  memory = begin.memory._replace(counts=tree["memory"]["counts"])
  return PhaseState(
    variables=jax.tree.map(devices.put, tree["variables"]),
    memory=memory_lib.replace(memory, tree["memory"]["images"]),
    key=jax.random.wrap_key_data(jnp.asarray(tree["key"])),
    phase=info["phase"],
    classes_seen=info["classes_seen"],
  )
