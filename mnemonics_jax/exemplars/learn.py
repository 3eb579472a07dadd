"""Exemplars whose pixels are learned: new ones, and old ones that are adjusted.

Shapes are padded so that every phase runs the same compiled programs. A stage hears
of every epoch and can continue from every moment.
"""

from collections.abc import Callable, Iterator
import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8
import numpy as np

from mnemonics_jax import bilevel
from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.images import concatenate
from mnemonics_jax.data.stream import StreamShape
from mnemonics_jax.exemplars.choose import (
  STRATEGIES,
  Chosen,
  NewImages,
  Strategy,
)
from mnemonics_jax.exemplars.future import Drifted, Imitated, Now
from mnemonics_jax.exemplars.level import Level, exemplar_level, pad
from mnemonics_jax.parallel import mesh
from mnemonics_jax.phase.config import Config
from mnemonics_jax.phase.context import Phase, Stage
from mnemonics_jax.phase.evaluate import extract_features
from mnemonics_jax.types import Variables

# With a codec that loses something, images whose meta loss is measured: as they
# were, as learned, as kept.
_JUDGED = ("before", "learned", "kept")


class Change(NamedTuple):
  """Images before and after they were learned.

  Attributes:
    before: as they were.
    after: as they were learned.
    labels: their classes.
    history: of the meta loop.
    kept: what is left of them in the memory.
    losses: if the codec loses something, the meta loss of each of `_JUDGED`.
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


@dataclasses.dataclass(frozen=True)
class Learned(Strategy):
  """Images whose pixels bilevel optimisation learns (Eq. 9).

  Attributes:
    start: chooses the images that learning starts from.
    future: the model that they are learned for.
  """

  start: Strategy
  future: Now

  @classmethod
  def of(cls, config: Config) -> "Learned":
    future = Drifted(config.drift) if config.drift else Now()
    if config.imitate:
      future = Imitated()
    return cls(STRATEGIES[config.init_exemplars].of(config), future)

  def on_features(self, config: Config) -> bool:
    """Whether exemplars are learned from features of the new images."""
    return exemplar_level(config).config.on_features and self.future.frozen

  def choose(self, phase: Phase, variables: Variables) -> Chosen:
    on_features, new = self.on_features(phase.config), NewImages.of(phase)
    picks, sizes, look = new.pick(self.start, variables, together=on_features)
    inputs = look.features if on_features else new.images
    return new.chosen(new.fitting(picks, sizes), inputs)

  def learn(
    self,
    phase: Phase,
    variables: Variables,
    chosen: Chosen,
    stage: Stage = Stage(),
  ) -> Change:
    sizes, later = phase.config.sizes, phase.classes_old > 0
    valid = self._validation(phase, variables, chosen)
    return in_chunks(
      phase,
      functools.partial(self.loop, phase, variables, valid),
      phase.keys("exemplars"),
      memory_lib.round_trip(phase.config.codec, chosen.images),
      chosen.labels,
      rows=sizes.new_exemplars if later else len(chosen.labels),
      epochs=phase.config.bilevel.epochs,
      stage=stage,
    )

  def _validation(self, phase, variables, chosen):
    """What validates new exemplars: the new data, perhaps the old exemplars."""
    config = phase.config
    if config.validate_on == "new":
      return chosen.inputs, chosen.input_labels
    old, old_labels = memory_lib.flat(phase.state.memory)
    if self.on_features(config):
      old = extract_features(config.model, config.method, variables, old)
    return (
      concatenate([chosen.inputs, old]),
      np.concatenate([chosen.input_labels, old_labels]),
    )

  def loop(self, phase, variables, valid, chunk: "_Chunk") -> "_Loop":
    """The meta loop for the exemplars of a chunk."""
    settings, (inputs, input_labels) = phase.config, valid
    level, start, active, more = self.future.begin(
      phase, variables, chunk.images, chunk.labels
    )
    later = phase.classes_old > 0
    rows = settings.sizes.later_pool if later else len(input_labels)
    if chunk.classes is not None:
      members = np.isin(input_labels, chunk.classes)
      inputs, input_labels = inputs[members], input_labels[members]
      rows = settings.exemplar_chunk * settings.sizes.class_images
    rows = mesh.round_up(rows)
    on_features = self.on_features(settings)
    data = (bilevel.Features if on_features else bilevel.Exemplars)(
      mesh.put_sharded(inputs, rows),
      pad(input_labels, rows),
      _real(input_labels, rows),
    )
    exemplars = _padded(chunk.images, chunk.labels, mesh.round_up(chunk.rows))
    problem = bilevel.prepare(
      exemplars, start, data,
      active=active, apply_fn=level.apply_fn, config=level.config, **more,
    )  # fmt: skip

    def judge(learned):
      kept = memory_lib.round_trip(settings.codec, learned)
      of = lambda x: _padded(x, chunk.labels, len(exemplars.labels)).images
      return [
        bilevel.evaluate(problem, chunk.key, of(x))
        for x in (chunk.images, learned, kept)
      ]

    return _Loop(
      bilevel.init(chunk.key, exemplars, level.config),
      functools.partial(bilevel.run_steps, problem),
      lambda state: state.images,
      None if settings.codec.exact else judge,
    )

  def work(self, config: Config, phase: int) -> float:
    assert isinstance(config.shape, StreamShape)
    split, sizes = config.shape.classes_per_phase, config.shape.class_sizes
    old, seen = sum(split[:phase]), sum(split[: phase + 1])
    kept = lambda classes: memory_lib.kept(config.memory, classes, max(sizes))
    chunks = count_chunks(config, split[phase])
    valid = sum(sizes[old:seen])
    valid += kept(old) if config.validate_on == "all" else 0
    level, exemplars = self.future.passes(
      config, kept(seen) / seen * split[phase] / chunks
    )
    images = chunks * loop_work(level, exemplars, valid / chunks)
    schedule = config.train if phase else config.base
    return images / schedule.batch_size + self.future.work(config, phase)


def adjust(
  phase: Phase, variables: Variables, stage: Stage = Stage()
) -> Change:
  """Learns old exemplars again, each part validated by the others (Eq. 10)."""
  config = phase.config
  level, parts = exemplar_level(config), config.adjust_parts

  def loop(chunk):
    rows = mesh.round_up(chunk.rows, parts=parts)
    exemplars = _padded(chunk.images, chunk.labels, rows)
    return _Loop(
      bilevel.init_parts(chunk.key, exemplars, level.config, parts),
      lambda states: bilevel.run_parts(
        exemplars, level.start(variables), states,
        active=phase.classes.seen, **level._asdict(),
      ),
      lambda states: bilevel.merge_parts(exemplars, states).images,
    )  # fmt: skip

  return in_chunks(
    phase,
    loop,
    phase.keys("adjust"),
    *memory_lib.flat(phase.state.memory),
    rows=config.sizes.old_exemplars,
    epochs=parts * level.config.epochs,
    stage=stage,
  )


class _Chunk(NamedTuple):
  """Exemplars that one meta loop learns together.

  Attributes:
    key: its randomness.
    images: where the exemplars start.
    labels: their classes.
    rows: rows to pad to.
    classes: those of the chunk; None if these are all.
  """

  key: Array
  images: UInt8[np.ndarray, "n h w c"]
  labels: Int[np.ndarray, " n"]
  rows: int
  classes: Int[np.ndarray, " classes"] | None


class _Loop(NamedTuple):
  """A meta loop that has not begun.

  Attributes:
    begin: its first state.
    run: goes on from a state.
    finish: the images of the last state.
    judge: losses of learned images, see `Change.losses`.
  """

  begin: Any
  run: Callable[[Any], Iterator[bilevel.Moment]]
  finish: Callable[[Any], Array]
  judge: Callable[[np.ndarray], list[float]] | None = None


class _Followed(NamedTuple):
  """What a meta loop needs to continue.

  Attributes:
    state: of `bilevel`.
    history: one row per epoch, zeros for those to come.
  """

  state: Any
  history: Float[np.ndarray, "epochs fields"]


def in_chunks(
  phase: Phase,
  loop: Callable[[_Chunk], _Loop],
  key: Array,
  images: UInt8[np.ndarray, "n h w c"],
  labels: Int[np.ndarray, " n"],
  *,
  rows: int,
  epochs: int,
  stage: Stage,
) -> Change:
  """Runs a meta loop for the exemplars of a few classes at a time.

  The base level trains on those alone, and data of the same classes validate
  it: memory for the unroll no longer grows with the number of classes. In the
  softmax they compete with all classes seen. A loop continues from where its
  stage has seen it last.

  Args:
    phase: whose `exemplar_chunk` says how many classes, None for all together.
    loop: makes the loop of a chunk; not called for one that is finished.
    key: root of its randomness.
    images: where the exemplars start.
    labels: their classes.
    rows: to pad to when all classes are learned together.
    epochs: how many a loop has.
    stage: hears of epochs, which are counted over all chunks.
  """
  config = phase.config
  chunks, fields = (
    _chunks(config, key, images, labels, rows),
    bilevel.History._fields,
  )
  learned, results = images.copy(), []
  for number, chunk in enumerate(chunks):
    part = stage
    if chunk.classes is not None:
      part = stage._replace(part=str(number))
    done = part.finished()
    if done is None:
      begin, run, finish, judge = loop(chunk)
      now = part.resume(_Followed(begin, np.zeros((epochs, len(fields)))))
      for moment in run(now.state):
        now = now._replace(state=moment.state)
        if moment.row is not None:
          now.history[moment.epoch] = [moment.row[field] for field in fields]
          epoch = number * epochs + moment.epoch
          stage.tell(epoch, len(chunks) * epochs, metrics=moment.row)
        part.offer(now)
      after = np.asarray(bilevel.to_uint8(finish(now.state)))
      done = {"images": after[: len(chunk.labels)], "history": now.history}
      if judge is not None:
        done["losses"] = np.array(judge(done["images"]))
      done = part.finish(done)
    learned[np.isin(labels, chunk.labels)] = done["images"]
    results.append(done)
  mean = lambda name: np.mean([done[name] for done in results], axis=0)
  losses: dict[str, float] = {}
  if "losses" in results[0]:
    losses = dict(zip(_JUDGED, mean("losses").tolist(), strict=True))
  kept = memory_lib.round_trip(config.codec, learned)
  history = bilevel.History(*mean("history").T)
  return Change(images, learned, labels, history, kept, losses)


def _chunks(config, key, images, labels, rows) -> list[_Chunk]:
  groups = split_classes(labels, config.exemplar_chunk)
  if len(groups) == 1:
    return [_Chunk(key, images, labels, rows, None)]
  # A shape that all chunks share. Old classes of a learner may have more exemplars
  # than new ones.
  most = max(config.sizes.class_exemplars, int(np.bincount(labels).max()))
  rows = config.exemplar_chunk * most
  return [
    _Chunk(
      jax.random.fold_in(key, number), images[own], labels[own], rows, group
    )
    for number, group in enumerate(groups)
    for own in [np.isin(labels, group)]
  ]


def split_classes(
  labels: Int[np.ndarray, " n"], size: int | None
) -> list[np.ndarray]:
  """The classes among `labels` in groups of `size`; None is one group."""
  names = np.unique(labels)
  return np.split(names, range(size or len(names), len(names), size or 1))


def count_chunks(config: Config, classes: int) -> int:
  """How many chunks so many classes make."""
  return math.ceil(classes / (config.exemplar_chunk or classes))


def _padded(images, labels, rows):
  images = bilevel.from_uint8(pad(images, rows))
  return bilevel.Exemplars(images, pad(labels, rows), _real(labels, rows))


def _real(labels, rows):
  return jnp.asarray(np.arange(rows) < len(labels))


def adjusting_work(config: Config, exemplars: float, classes: int) -> float:
  """Images that pass forward and backward while old exemplars are adjusted."""
  chunks = count_chunks(config, classes)
  others = exemplars * (1 - 1 / config.adjust_parts)
  level = exemplar_level(config)
  return chunks * loop_work(level, exemplars / chunks, others / chunks)


def loop_work(level: Level, exemplars: float, data: float) -> float:
  """Images that a meta loop passes forward and backward.

  Args:
    level: its recipe.
    exemplars: in a step of the base level.
    data: images that validate it.
  """
  config = level.config
  assert config.batch_size is not None  # `resolve` has filled it in.
  meta_steps = config.steps_per_epoch or math.ceil(data / config.batch_size)
  passes = exemplars
  if not config.on_features:
    # An inner step costs its gradient and the gradient through it.
    passes = 4 * exemplars * config.inner_steps + config.batch_size
  return config.epochs * meta_steps * passes
