"""A copy of a finished run goes on with classes that it did not know.

The copy takes the records, arrays and checkpoints; original data are not needed.
Checkpoints get the room that the new classes need, as if they had had it all
along. Then it is a run like any other, which an interruption does not harm.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
from pathlib import Path
import shutil
from typing import Any

from mnemonics_jax import phase as phase_lib
from mnemonics_jax.data import Dataset
from mnemonics_jax.data.stream import Extension, StreamShape
from mnemonics_jax.errors import UserError
from mnemonics_jax.learner.inputs import check_incremental
from mnemonics_jax.learner.known import resized
from mnemonics_jax.phase import Config
from mnemonics_jax.runs import (
  artifact,
  claim,
  drafts,
  journal,
  layout,
  learners,
  runner,
)
from mnemonics_jax.runs.results import Run, load_run


def extend(
  source: str | Path,
  dataset: Dataset,
  workdir: str | Path,
  *,
  phases: int = 1,
  network: Any = None,
  about: Mapping[str, Any] | None = None,
  **options: Any,
) -> dict[str, Any]:
  """Learns the classes that a run does not know; the same call continues.

  Args:
    source: work directory of a finished run, which stays as it is.
    dataset: images of new classes; of known ones, the test images are used.
    workdir: where the copy is, or is going to be.
    phases: how many more; new classes are spread over them evenly.
    network: of the run, if it is one of your own: code is not saved.
    about: what else the settings of the copy should tell.
    **options: more arguments of `runs.run`.

  Returns:
    The object in results.json, of old and new phases.
  """
  run, workdir = load_run(source), Path(workdir)
  old = learners.run_config(run.path, network)
  assert isinstance(old.shape, StreamShape)
  check_incremental(old.method)
  if run.path.resolve() == workdir.resolve():
    raise UserError(
      "workdir", f"`workdir={workdir}` is the run itself", "choose another one"
    )
  stream = Extension(dataset, run.results["class_names"], old.shape, phases)
  stream.name = f"{run.results['dataset']} and more"
  stream.notes = (*stream.notes, *untested(stream))
  config = dataclasses.replace(old, shape=stream.shape)
  settings = {
    **run.config.get("settings", {}),
    **(about or {}),
    "extended_by": list(stream.class_names[len(run.results["class_names"]) :]),
    "extended_in_phases": phases,
  }
  title, preset = run.results["title"], run.results["preset"]
  labels = runner.Labels(f"{title} · extended", preset)
  described = runner.description(config, stream, labels)
  with _cannot_write(workdir), claim.reserved(workdir):
    if not layout.config_path(workdir).exists():
      _copy(
        run, old, config, workdir,
        lambda draft: claim.write(draft, settings, stream.checksum, described),
      )  # fmt: skip
  return runner.run(
    config,
    stream,
    workdir,
    seeds=run.results["seeds"],
    settings=settings,
    labels=labels,
    **options,
  )


def untested(stream: Extension) -> Iterator[str]:
  """What a person should know about what will be measured."""
  if not stream.untested:
    return
  names = ", ".join(stream.untested[:5])
  more = ", ..." if stream.untested[5:] else ""
  yield (
    f"there are no test images of {len(stream.untested)} learned classes"
    f" ({names}{more}). Accuracies of the new phases are over the other"
    " classes, and forgetting is unknown; put images of learned classes beside"
    " the new ones to test on them."
  )


def _copy(
  run: Run,
  old: Config,
  config: Config,
  workdir: Path,
  write_config: Callable[[Path], None],
) -> None:
  """Makes the copy; it is complete before it gets its name."""
  claim.check_free(workdir)
  with drafts.drafting(workdir.resolve()) as draft:
    write_config(draft)
    for seed in run.results["seeds"]:
      _copy_seed(run.path, draft, old, config, seed)
    shutil.copyfile(layout.metrics_path(run.path), layout.metrics_path(draft))
    if workdir.exists():
      _remove_free(workdir)


def _remove_free(workdir):
  """Removes a directory in which a kill may have left a lock and a draft."""
  workdir = workdir.resolve()
  with claim.locked(workdir):
    claim.check_free(workdir)
    for left in claim.leftovers(workdir):
      left.unlink()
    workdir.rmdir()


@contextlib.contextmanager
def _cannot_write(workdir):
  try:
    yield
  except OSError as error:
    raise UserError(
      "workdir",
      f"`workdir={workdir}` cannot be written ({error})",
      "make room there, or choose another one",
    ) from error


def _copy_seed(source, target, old, config, seed):
  phases = journal.saved_phases(source, seed)
  last = len(old.shape.classes_per_phase) - 1
  if last not in phases:
    raise UserError(
      "run",
      f"{source} has no checkpoint of seed {seed} after its last phase",
      "repeat the command of the run, or choose another run",
    )
  begin = phase_lib.begin_run(seed, config)
  run = claim.run_name(layout.read_config(target))
  for phase in phases:
    name = journal.checkpoint_name(phase)
    state, info = learners.run_state(source, old, seed, phase)
    # Where its records end is another place once other seeds have gone on.
    artifact.save(
      layout.checkpoint_dir(target, seed) / name,
      journal.pack_state(resized(state, begin)),
      info | {"log": None},
      journal.place_of(run, seed, name),
    )
  for phase in range(last + 1):
    arrays = layout.phase_arrays_path(source, seed, phase)
    if arrays.exists():
      to = layout.phase_arrays_path(target, seed, phase)
      shutil.copyfile(arrays, to)
