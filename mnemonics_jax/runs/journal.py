"""Checkpoints of a seed: after every phase, and every few minutes within one.

  seed_0/checkpoints/phase_02           the state after phase 2
  seed_0/checkpoints/phase_03_part_007  how far phase 3 has come since then

A part needs the checkpoint of the phase before it. Computing again what no checkpoint
holds gives the same numbers.
"""

import contextlib
import dataclasses
import json
from pathlib import Path
import re
import shutil
import time
from typing import Any
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.errors import DiskError, UserError, remedy
from mnemonics_jax.parallel import mesh, processes
from mnemonics_jax.phase.context import Journal
from mnemonics_jax.progress import Event, Note, Report, StepReport
from mnemonics_jax.runs import (
  artifact,
  drafts,
  environment,
  layout,
)
from mnemonics_jax.runs.metrics_log import MetricsLog
from mnemonics_jax.runs.signals import Stop
from mnemonics_jax.types import PhaseState, PyTree

# Of the parts within a phase: what the loops of a phase offer, leaf by leaf.
_FORMAT = 2
# Parts of the running phase that are kept: the newest, and one to fall back on.
_PARTS = 2


@dataclasses.dataclass(frozen=True)
class Policy:
  """When to save and what to keep.

  Attributes:
    every: seconds between checkpoints within a phase.
    keep: how many checkpoints of phases to keep, None for all.
    patience: seconds after which a signal ends a run that does not come to its
      next checkpoint, or the time that two steps and a save have taken, if that
      is longer; None waits.
  """

  every: float = 180.0
  keep: int | None = None
  patience: float | None = None

  def __post_init__(self):
    if not 0 <= self.every < float("inf"):
      raise UserError(
        "every",
        f"`every={self.every}` must be 0 or more seconds",
        "180 is usual",
      )
    if self.patience is not None and not 0 <= self.patience < float("inf"):
      raise UserError(
        "patience",
        f"`patience={self.patience}` must be 0 or more seconds",
        "25 is usual",
      )
    if self.keep is not None and self.keep < 1:
      raise UserError(
        "keep", f"`keep={self.keep}` must be 1 or more", "leave it out for all"
      )


class Saver(Journal):
  """The journal of one seed's phases, kept on disk.

  Args:
    seed: its number.
    workdir: of the run.
    policy: when to save and what to keep.
    log: the metrics; they go back to where a checkpoint was made.
    stop: asked at every opportunity to save.
    report: hears what a person should know.
    run: name of the run, which its checkpoints hold; see `claim.run_name`.

  Attributes:
    directory: where its checkpoints are.
    clock: durations of the running phase; wants to hear its reports.
  """

  def __init__(
    self,
    seed: int,
    workdir: Path,
    policy: Policy,
    log: MetricsLog,
    stop: Stop,
    report: Report,
    run: str = "",
  ):
    self.clock = Clock()
    self.seed, self.workdir, self.log = seed, workdir, log
    self.directory = layout.checkpoint_dir(workdir, seed)
    self._policy, self._run = policy, run
    self._stop, self._report = stop, report
    self._saved = time.monotonic()
    self._begin_phase(0)

  def _say(self, text):
    self._report(Note(text))

  def _begin_phase(self, phase):
    self._phase = phase
    self._finished: dict[str, PyTree] = {}
    self._running: tuple[str | None, list[np.ndarray]] = None, []
    self.clock.restart({})

  @property
  def newest(self) -> str:
    """The last checkpoint, for a message."""
    names = self._phases() + self._parts()
    return str(self.directory / names[-1]) if names else "still to be made"

  def restore(
    self, begin: PhaseState
  ) -> tuple[PhaseState, list[dict[str, Any]]]:
    """The newest state, with the records of the phases before it.

    Args:
      begin: the state of a run that has not begun.
    """
    self.directory.mkdir(parents=True, exist_ok=True)
    drafts.remove_drafts(self.directory)
    for draft in self.directory.glob("*.partial-*"):  # Of version 0.1.
      shutil.rmtree(draft)
    damaged: list[artifact.Damaged] = []
    state, records, log_size = begin, [], None
    info: dict[str, Any] = {}
    if found := self._newest_good(self._phases(), damaged):
      tree, info = found
      state = unpack_state(begin.memory, tree, info)
      records, log_size = info["records"], info["log"]
      if log_size is None:  # It was made for another log.
        log_size = self.log.start_of(self.seed, state.phase)
    self._begin_phase(state.phase)
    found = self._newest_good(self._parts(state.phase), damaged)
    unfit = _unfit(found[1]) if found else None
    if unfit:
      self._say(
        f"The checkpoint within phase {state.phase} was made {unfit}; the phase"
        " begins again."
      )
    elif found:
      tree, info = found
      leaves = tree.get("running", {})
      finished = tree.get("finished", {})
      self._finished = {
        name: finished[name] for name in info.get("finished", finished)
      }
      self._running = info["stage"], [leaves[name] for name in sorted(leaves)]
      self.clock.restart(info["seconds"])
      log_size = info["log"]
    if damaged and log_size is None and not unfit:
      whole = isinstance(damaged[0], artifact.Misplaced)
      raise UserError(
        "workdir",
        f"{damaged[0]}, and there is no older checkpoint",
        f"{'move it back' if whole else 'restore it from a copy'}, or remove"
        f" {self.directory} to begin seed {self.seed} again",
      )
    if log_size is None:
      log_size = self.log.start_of(self.seed)
    else:
      self._say(
        f"Continuing seed {self.seed} in phase {state.phase}{self._stage()}."
      )
      if change := environment.kernels_changed(info):
        self._say(
          f"Since this checkpoint was made, {change}: bits differ, numbers agree"
          " to rounding."
        )
    if lost := self.log.truncate(log_size, self.seed):
      self._say(
        f"{lost} bytes of {layout.metrics_path(self.workdir)} are gone since the"
        " checkpoint was made: curves will lack these epochs, results will not."
      )
    for error in damaged:
      aside = error.path.with_name(f"damaged_{error.path.name}")
      shutil.rmtree(aside, ignore_errors=True)
      error.path.rename(aside)
      self._say(f"{error}. It is now {aside.name}, and an older one is used.")
    if unfit:  # They know where the log ended, and it will be another one.
      for name in self._parts(state.phase):
        shutil.rmtree(self.directory / name)
    stage = self._running[0] or ""
    if not processes.all_equal(
      zlib.crc32(f"{state.phase} {stage}".encode()) >> 1
    ):
      raise UserError(
        "workdir",
        f"the processes see different checkpoints in {self.directory}",
        "put `workdir` on a disk that all machines see",
      )
    self._prune()  # Parts of a later phase need a phase that is gone.
    return state, records

  def _newest_good(self, names, damaged):
    """The first checkpoint that can be read, from the last; notes the others."""
    for name in reversed(names):
      try:
        return artifact.restore(self.directory / name, self._place(name))
      except artifact.Damaged as error:
        damaged.append(error)
      except OSError as error:
        raise DiskError(
          "workdir",
          f"{self.directory / name} cannot be read now ({error}), and nothing was"
          " changed",
          "run it again when the disk answers, or with the Orbax that wrote it",
        ) from error
    return None

  # The journal of the running phase.

  def finished(self, stage: str) -> PyTree | None:
    return self._finished.get(stage)

  def finish(self, stage: str, value: PyTree) -> PyTree:
    self._finished[stage] = jax.tree.map(np.asarray, value)
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
    return jax.tree.unflatten(structure, [like_leaf(*pair) for pair in pairs])

  def offer(self, stage: str, state: PyTree) -> None:
    self._save_if_due(stage, jax.tree.leaves(state))

  def _save_if_due(self, stage, leaves):
    self._stop.opportunity()
    waited = time.monotonic() - self._saved
    due = processes.all_max(waited >= self._policy.every)
    if not due and not self._stop.agreed():
      return
    self._running = stage, []
    parts = self._parts(self._phase)
    number = int(parts[-1].rpartition("_")[2]) + 1 if parts else 0
    tree = {"running": {f"{i:05d}": x for i, x in enumerate(to_host(leaves))}}
    tree["finished"] = self._finished
    self._save(
      checkpoint_name(self._phase, number),
      {name: part for name, part in tree.items() if part},
      {
        "stage": stage,
        "finished": [*self._finished],  # As they ended; arrays are sorted.
        "seconds": self.clock.read(),
      },
      f"in phase {self._phase}{self._stage()}",
    )
    self._stop.obey()

  def _stage(self):
    """Where the running phase is, in words."""
    if self._running[0]:
      return f", stage {self._running[0]}"
    return "".join(f", after stage {name}" for name in [*self._finished][-1:])

  # The end of a phase.

  def end_phase(
    self, state: PhaseState, records: list[dict[str, Any]]
  ) -> PhaseState:
    """Saves the state between two phases; a large memory is on the disk then."""
    self._begin_phase(state.phase)
    info = {"classes_seen": state.classes_seen, "records": records}
    done = state.phase - 1
    name = checkpoint_name(done)
    self._save(name, pack_state(state), info, f"after phase {done}")
    self._stop.obey()
    return on_disk(state, artifact.large(self.directory / name))

  def _save(self, name, tree, info, where):
    began = time.monotonic()
    info = info | {
      "phase": self._phase,
      "log": self.log.sync(),
      "devices": mesh.device_count(),
      environment.KERNELS: environment.kernels(),
      "format": _FORMAT,
    }
    try:
      with self._stop.saving():
        path = self.directory / name
        size = artifact.save(path, tree, info, self._place(name))
    except OSError as error:
      raise DiskError(
        "workdir",
        f"a checkpoint could not be written to {self.directory}"
        f" ({error.strerror or error}); the last good one is {self.newest}",
        f"{remedy(error)} and run it again to continue from it",
      ) from error
    self._prune()
    self._saved = time.monotonic()
    took = f"{size / 1e6:.1f} MB in {self._saved - began:.1f} s"
    self._say(f"Checkpoint {where}: {took}.")

  def _place(self, name):
    return place_of(self._run, self.seed, name)

  def _prune(self):
    parts, current = self._parts(), self._parts(self._phase)[-_PARTS:]
    old = [name for name in parts if name not in current]
    if self._policy.keep is not None:
      old += self._phases()[: -self._policy.keep]
    for name in old:
      shutil.rmtree(self.directory / name, ignore_errors=True)

  def _phases(self):
    return phase_names(self.directory)

  def _parts(self, phase=None):
    return part_names(self.directory, phase)


def _unfit(info):
  """Why a part of a phase cannot be continued here, or None."""
  if info.get("format", 1) != _FORMAT:
    return "by another version"
  if info["devices"] != mesh.device_count():
    return f"on {info['devices']} devices"
  return None


# Seconds.


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

  def __call__(self, event: Event) -> None:
    if isinstance(event, StepReport):
      self.read()
      self.stage = event.stage

  def read(self) -> dict[str, float]:
    """The counts until now."""
    now = time.monotonic()
    if self.stage is not None:
      spent = self._seconds.get(self.stage, 0.0) + now - self._since
      self._seconds[self.stage] = spent
    self._since = now
    return dict(self._seconds)


# States as arrays.


def _is_key(leaf):
  return isinstance(leaf, jax.Array) and jnp.issubdtype(
    leaf.dtype, jax.dtypes.prng_key
  )


def to_host(leaves):
  """Arrays of a tree as they are stored."""
  return [
    np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    for leaf in leaves
  ]


def like_leaf(stored, leaf):
  """A stored array, as a key, an array on the devices or a number, like `leaf`."""
  if _is_key(leaf):
    return jax.random.wrap_key_data(jnp.asarray(stored))
  if isinstance(leaf, jax.Array):
    return mesh.put_replicated(stored)
  return stored if isinstance(leaf, np.ndarray) else type(leaf)(stored)


def pack_memory(memory):
  """Images if they are kept as they are, as ever; or codes."""
  kept = {"images": memory.images}
  if not memory.codec.exact:
    kept = {"codes": memory.codes.data, "sizes": memory.codes.sizes}
  return kept | {"counts": memory.counts}


def pack_state(state):
  return {
    "variables": state.variables,
    "memory": pack_memory(state.memory),
    "key": jax.random.key_data(state.key),
  }


def _unpack_memory(empty, kept):
  if empty.codec.exact:
    codes = empty.codec.encode(kept["images"])
  else:
    codes = memory_lib.Codes(kept["codes"], kept["sizes"])
  return dataclasses.replace(empty, codes=codes, counts=kept["counts"])


def on_disk(state, large):
  """The saved state, with `artifact.large` arrays in place of those in memory."""
  packed = pack_memory(state.memory)
  found = {name: large.get(f"memory.{name}", x) for name, x in packed.items()}
  return state._replace(memory=_unpack_memory(state.memory, found))


def unpack_state(empty, tree, info):
  """The state whose arrays these are, with the codec of an empty memory."""
  return PhaseState(
    variables=jax.tree.map(mesh.put_replicated, tree["variables"]),
    memory=_unpack_memory(empty, tree["memory"]),
    key=jax.random.wrap_key_data(jnp.asarray(tree["key"])),
    phase=info["phase"],
    classes_seen=info["classes_seen"],
  )


# Names of checkpoints.


def checkpoint_name(phase: int, part: int | None = None) -> str:
  """Of the state after a phase, or of the n-th part within it."""
  whole = f"phase_{phase:02d}"
  return whole if part is None else f"{whole}_part_{part:03d}"


def parse_name(name: str) -> tuple[int, int | None] | None:
  """The phase and the part; None if it does not name a checkpoint.

  >>> parse_name("phase_03_part_007")
  (3, 7)
  """
  found = re.fullmatch(r"phase_(\d{2,})(?:_part_(\d{3,}))?", name)
  if found is None:
    return None
  return int(found[1]), None if found[2] is None else int(found[2])


def place_of(run: str, seed: int, name: str) -> dict[str, Any]:
  """What a checkpoint says that it is one of.

  >>> place_of("ab12", 0, "phase_03_part_007")
  {'run': 'ab12', 'seed': 0, 'phase': 3, 'part': 7}
  """
  phase, part = parse_name(name) or (None, None)
  return {"run": run, "seed": seed, "phase": phase, "part": part}


def runs_of(workdir: layout.AnyPath) -> set[str]:
  """Names of the runs whose checkpoints these say they are; see `place`."""
  found = set()
  for manifest in Path(workdir).glob(f"seed_*/*/phase_*/{artifact.MANIFEST}"):
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
      found.add(json.loads(manifest.read_bytes())["place"]["run"])
  return found


def phase_names(directory: Path) -> list[str]:
  """Names of the states after phases that are there, oldest first."""
  return [name for name, (_, part) in _sorted(directory) if part is None]


def part_names(directory: Path, phase: int | None = None) -> list[str]:
  """Names of the parts of a phase, or of all, oldest first."""
  return [
    name
    for name, (its_phase, part) in _sorted(directory)
    if part is not None and phase in (None, its_phase)
  ]


def _sorted(directory):
  found = {path.name: parse_name(path.name) for path in directory.glob("*")}
  places = [(name, place) for name, place in found.items() if place is not None]
  return sorted(places, key=lambda one: (one[1][0], one[1][1] or 0))


def saved_phases(workdir: layout.AnyPath, seed: int) -> list[int]:
  """Those with a checkpoint of their end."""
  names = phase_names(layout.checkpoint_dir(workdir, seed))
  return [found[0] for found in map(parse_name, names) if found is not None]
