"""The meta loop within a phase: images of the memory through `bilevel` and back.

Shapes are padded so that every phase runs the same compiled programs; a stage
hears of every epoch and can continue from every moment.
"""

from collections.abc import Callable, Iterator
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8
import numpy as np

from mnemonics_jax import bilevel
from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.images import Images
from mnemonics_jax.parallel import mesh
from mnemonics_jax.phase import imitation
from mnemonics_jax.phase.context import Phase, Stage
from mnemonics_jax.phase.level import (
  exemplar_level,
  imitated_level,
  learned_on_features,
)
from mnemonics_jax.types import Variables

# Validation images of a meta step for models whose features change with it.
_MOVING_BATCH = 512
# Of what learned images have a loss: as they were, as learned, as kept.
_JUDGED = ("before", "learned", "kept")


class Change(NamedTuple):
  """Images before and after they were learned.

  Attributes:
    before: as they were.
    after: as they were learned.
    labels: their classes.
    history: of the meta loop.
    kept: what is left of them once they are kept.
    losses: if a codec loses something, the meta loss of each of `_JUDGED`.
  """

  before: UInt8[np.ndarray, "n h w c"]
  after: UInt8[np.ndarray, "n h w c"]
  labels: Int[np.ndarray, " n"]
  history: bilevel.History
  kept: UInt8[np.ndarray, "n h w c"]
  losses: dict[str, float]

  def diagnostics(self) -> dict[str, Any]:
    """What a report shows of it: the history and the stored change."""
    change = np.abs(self.kept.astype(np.int32) - self.before.astype(np.int32))
    history = self.history._asdict()
    return {
      **{name: values.tolist() for name, values in history.items()},
      "mean_change": float(change.mean()),
      "max_change": int(change.max()),
      **{f"loss_{name}": value for name, value in self.losses.items()},
    }


def learn(phase, key, images, labels, variables, valid, *, rows, **options):
  """One call of the meta loop; the arguments are those of `in_chunks`."""
  level, settings = exemplar_level(phase.config), phase.config
  start, active, more = level.start(variables), phase.classes.seen, {}
  if settings.imitate:
    follow = imitation.imitated(
      phase, variables, images, labels, level.config.inner_steps
    )
    if follow is not None:
      level = imitated_level(settings)
      start, active, more["inner_data"] = follow
  valid_rows = options.pop("valid_rows")
  config = level.config
  if settings.drift or settings.imitate:
    config = dataclasses.replace(
      config, batch_size=settings.bilevel.batch_size or _MOVING_BATCH
    )
  rows, valid_rows = mesh.round_up(rows), mesh.round_up(valid_rows)
  inputs, input_labels = valid
  kind = (
    bilevel.Features if learned_on_features(settings) else bilevel.Exemplars
  )
  data = kind(
    mesh.put_sharded(inputs, valid_rows),
    _pad(input_labels, valid_rows),
    _real(input_labels, valid_rows),
  )
  exemplars = _padded_exemplars(images, labels, rows)

  @functools.cache  # What was learned before an interruption needs none.
  def problem():
    if settings.drift:
      copies = imitation.drifted(
        phase, variables, images, labels, settings.drift
      )
      more["starts"] = jax.vmap(level.start)(copies)
    return bilevel.prepare(
      exemplars,
      start,
      data,
      active=active,
      apply_fn=level.apply_fn,
      config=config,
      **more,
    )

  def judge(learned):
    kept = memory_lib.round_trip(settings.codec, learned)
    padded = (
      _padded_exemplars(x, labels, rows).images for x in (images, learned, kept)
    )
    return [bilevel.evaluate(problem(), key, x) for x in padded]

  begin = bilevel.init(key, exemplars, config)
  return _follow(
    begin,
    lambda state: bilevel.run_steps(problem(), state),
    lambda state: state.images,
    config.epochs,
    len(labels),
    judge=None if settings.codec.exact else judge,
    **options,
  )


def adjust(phase, key, images, labels, variables, *, rows, **options):
  """The meta loop over all parts; the arguments are those of `in_chunks`."""
  level, parts = exemplar_level(phase.config), phase.config.adjust_parts
  config, epochs = level.config, parts * level.config.epochs
  rows = mesh.round_up(rows, parts=parts)
  exemplars = _padded_exemplars(images, labels, rows)
  run = lambda states: bilevel.run_parts(
    exemplars,
    level.start(variables),
    states,
    active=phase.classes.seen,
    apply_fn=level.apply_fn,
    config=config,
  )
  begin = bilevel.init_parts(key, exemplars, config, parts)
  finish = lambda states: bilevel.merge_parts(exemplars, states).images
  return _follow(begin, run, finish, epochs, len(labels), **options)


class _Followed(NamedTuple):
  """What a meta loop needs to continue.

  Attributes:
    state: of `bilevel`.
    history: one row per epoch, zeros for those to come.
  """

  state: Any
  history: Float[np.ndarray, "epochs fields"]


def _follow(
  begin: Any,
  run: Callable[[Any], Iterator[bilevel.Moment]],
  finish: Callable[[Any], Array],
  epochs: int,
  count: int,
  *,
  stage: Stage,
  tell: Callable[[int, dict[str, float]], None],
  judge: Callable[[np.ndarray], list[float]] | None = None,
) -> tuple[UInt8[np.ndarray, "n h w c"], bilevel.History, np.ndarray]:
  """Runs a meta loop from where its stage has seen it last.

  Args:
    begin: its first state.
    run: goes on from a state.
    finish: the images of the last state.
    epochs: how many the loop has.
    count: real rows of the exemplars.
    stage: what it is a part of.
    tell: called with the number of each epoch that has ended, and its row.
    judge: losses of what was learned, see `Change.losses`.
  """
  fields = bilevel.History._fields

  done = stage.finished()
  if done is None:
    now = stage.resume(_Followed(begin, np.zeros((epochs, len(fields)))))
    for moment in run(now.state):
      now = now._replace(state=moment.state)
      if moment.row is not None:
        now.history[moment.epoch] = [moment.row[field] for field in fields]
        tell(moment.epoch, moment.row)
      stage.offer(now)
    images = np.asarray(bilevel.to_uint8(finish(now.state)))[:count]
    done = {"images": images, "history": now.history}
    if judge:
      done["losses"] = np.array(judge(images))
    done = stage.finish(done)
  losses = done.get("losses", np.zeros(0))
  return done["images"], bilevel.History(*done["history"].T), losses


def in_chunks(
  phase: Phase,
  loop: Callable[..., tuple[np.ndarray, bilevel.History, np.ndarray]],
  key: Array,
  images: UInt8[np.ndarray, "n h w c"],
  labels: Int[np.ndarray, " n"],
  variables: Variables,
  *valid: tuple[Images, np.ndarray],
  stage: Stage,
  epochs: int,
  **rows: int,
) -> Change:
  """A meta loop for the exemplars of a few classes at a time.

  The base level trains on those alone, and data of the same classes validate
  it: memory for the unroll no longer grows with the number of classes. In the
  softmax they compete with all classes seen.

  Args:
    phase: whose `exemplar_chunk` says how many classes, None for all together.
    loop: `learn` or `adjust`.
    key: its randomness.
    images: where the exemplars start.
    labels: their classes.
    variables: Θ_i.
    *valid: inputs and labels of the validation data, if the loop takes any.
    stage: hears of epochs, which are counted over all chunks.
    epochs: how many a loop has.
    **rows: shapes to pad to when all classes are learned together.
  """
  config = phase.config
  chunks = split_classes(labels, config.exemplar_chunk)
  total = len(chunks) * epochs

  def tell(done, epoch, row):
    stage.tell(done + epoch, total, metrics=row)

  def change(learned, history, losses):
    kept = memory_lib.round_trip(config.codec, learned)
    named: dict[str, float] = dict(zip(_JUDGED, losses.tolist(), strict=False))
    return Change(images, learned, labels, history, kept, named)

  if len(chunks) == 1:
    learned, history, losses = loop(
      phase, key, images, labels, variables, *valid,
      stage=stage, tell=functools.partial(tell, 0), **rows,
    )  # fmt: skip
    return change(learned, history, losses)
  learned, histories, all_losses = images.copy(), [], []
  # Shapes that all chunks share. Old classes of a learner may have more exemplars
  # than new ones.
  size = {
    "rows": max(config.sizes.class_exemplars, int(np.bincount(labels).max())),
    "valid_rows": config.sizes.class_images,
  }
  rows = {name: len(chunks[0]) * size[name] for name in rows}
  for number, chunk in enumerate(chunks):
    members = np.isin(labels, chunk)
    learned[members], history, losses = loop(
      phase,
      jax.random.fold_in(key, number),
      images[members],
      labels[members],
      variables,
      *(_rows_of(arrays, chunk) for arrays in valid),
      stage=stage._replace(part=str(number)),
      tell=functools.partial(tell, number * epochs),
      **rows,
    )
    histories.append(history)
    all_losses.append(losses)
  mean = lambda *parts: np.mean(parts, axis=0)
  history = bilevel.History(*map(mean, *histories))
  return change(learned, history, mean(*all_losses))


def split_classes(
  labels: Int[np.ndarray, " n"], size: int | None
) -> list[np.ndarray]:
  """The classes among `labels` in groups of `size`; None is one group."""
  names = np.unique(labels)
  return np.split(names, range(size or len(names), len(names), size or 1))


def _rows_of(arrays, classes):
  members = np.isin(arrays[-1], classes)
  return tuple(array[members] for array in arrays)


def _padded_exemplars(images, labels, rows):
  images = bilevel.from_uint8(_pad(images, rows))
  return bilevel.Exemplars(images, _pad(labels, rows), _real(labels, rows))


def _pad(array, rows):
  padding = [(0, rows - len(array))] + [(0, 0)] * (array.ndim - 1)
  return mesh.put_replicated(np.pad(array, padding))


def _real(labels, rows):
  return jnp.asarray(np.arange(rows) < len(labels))
