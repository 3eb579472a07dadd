"""The exemplar level of a phase: the memory's images through `bilevel` and back.

What is learned are uint8 images of fixed shapes, padded so that every phase
runs the same compiled programs.
"""

from collections.abc import Callable, Iterable
import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8
import numpy as np

from mnemonics_jax import (
  bilevel,
  bilevel_config,
  devices,
  selection,
  transfer,
)
from mnemonics_jax.augment import Augmentation
from mnemonics_jax.heads import CosineHead
from mnemonics_jax.journal import Journal
from mnemonics_jax.methods import Method
from mnemonics_jax.model import Model
from mnemonics_jax.types import Variables

# σ of the inner cosine head for models whose own head has none.
_SIGMA = 10.0


def select(
  rng: np.random.Generator,
  features: Float[np.ndarray, "n d"] | None,
  labels: Int[np.ndarray, " n"],
  classes: Iterable[int],
  *,
  strategy: str,
  allowance: int,
) -> Int[np.ndarray, " picks"]:
  """Rows of the images that become exemplars, at most `allowance` per class.

  Only herding looks at features.
  """
  picks = []
  for label in classes:
    own = np.flatnonzero(labels == label)
    if strategy == "herding":
      assert features is not None
      chosen = selection.herding(features[own], allowance)
    else:
      chosen = selection.random(rng, len(own), allowance)
    picks.append(own[chosen])
  return np.concatenate(picks)


class Level(NamedTuple):
  """A model and a recipe, ready for `bilevel`.

  Attributes:
    apply_fn: (variables, images) -> the method's logits.
    config: the recipe with the functions filled in.
  """

  apply_fn: bilevel_config.ApplyFn
  config: bilevel.BilevelConfig


@functools.cache
def configure(
  recipe: bilevel.BilevelConfig,
  model: Model,
  method: Method,
  augment: Augmentation,
) -> Level:
  """The model as functions that `bilevel` unrolls.

  Cached, because compiled programs are found by the identity of functions.
  With `scope="head"` the base level trains a cosine head on frozen features,
  whatever head the model has: it starts from the exemplars' own class means.
  """

  def features_fn(variables, images, train=False):
    return model.features(variables, images, train)[0]

  def head_fn(head, features):
    sigma = lax.stop_gradient(head.get("sigma", _SIGMA))
    rows = {"weight": head["weight"], "sigma": sigma}
    return CosineHead().scores(rows, features).logits

  def apply_fn(variables, images, train=False):
    outputs, _ = model.apply(variables, images, train)
    return method.logits(variables, outputs)

  config = dataclasses.replace(
    recipe, features_fn=features_fn, head_fn=head_fn, augment=augment
  )
  return Level(apply_fn, config.resolve())


def learn(
  key: Array,
  images: UInt8[np.ndarray, "n h w c"],
  labels: Int[np.ndarray, " n"],
  variables: Variables,
  data: tuple[np.ndarray, np.ndarray],
  *,
  level: Level,
  seen: Bool[Array, " classes"],
  rows: int,
  data_rows: int,
  journal: Journal = Journal(),
  entry: str = "exemplars",
  callback: bilevel.Callback = lambda *_: None,
) -> tuple[UInt8[np.ndarray, "n h w c"], bilevel.History]:
  """Learns the exemplars of new classes (Eq. 8).

  Args:
    key: randomness of the meta loop.
    images: start images of the exemplars.
    labels: their classes.
    variables: Θ_i, where the base level starts.
    data: the validation set: features if the level works on them, or images;
      and labels.
    level: model and recipe.
    seen: classes that compete.
    rows: number of exemplar rows to pad to.
    data_rows: number of validation rows to pad to.
    journal: where to look for a beginning, and whom to tell about progress.
    entry: name of this loop in the journal.
    callback: called after each meta epoch.
  """
  level = _with_steps(level, data_rows)
  rows, data_rows = devices.divisible(rows), devices.divisible(data_rows)
  inputs, data_labels = data
  kind = bilevel.Features if level.config.on_features else bilevel.Exemplars
  valid = kind(
    devices.spread(inputs, data_rows),
    _pad(data_labels, data_rows),
    _real(data_labels, data_rows),
  )
  exemplars = _exemplars(images, labels, rows)
  loop = functools.partial(
    bilevel.optimize_exemplars,
    key,
    exemplars,
    start(variables, level),
    valid,
    active=seen,
    **level._asdict(),
  )
  like = bilevel.init_state(key, exemplars, level.config)
  return _noted(
    loop, like, level.config.epochs, len(labels), journal, entry, callback
  )


def adjust(
  key: Array,
  images: UInt8[np.ndarray, "n h w c"],
  labels: Int[np.ndarray, " n"],
  variables: Variables,
  *,
  level: Level,
  seen: Bool[Array, " classes"],
  rows: int,
  journal: Journal = Journal(),
  entry: str = "adjust",
  callback: bilevel.Callback = lambda *_: None,
) -> tuple[UInt8[np.ndarray, "n h w c"], bilevel.History]:
  """Adjusts old exemplars, one half validated by the other (Eq. 10)."""
  if len(labels) < 2:  # A chunk of one has no other half.
    nothing = np.zeros(2 * level.config.epochs)
    return images, bilevel.History(*[nothing] * len(bilevel.History._fields))
  level = _with_steps(level, math.ceil(rows / 2))
  rows = devices.divisible(rows, parts=2)
  exemplars = _exemplars(images, labels, rows)
  loop = functools.partial(
    bilevel.adjust_exemplars,
    key,
    exemplars,
    start(variables, level),
    active=seen,
    **level._asdict(),
  )
  like = (bilevel.init_state(key, exemplars, level.config),) * 2
  return _noted(
    loop, like, 2 * level.config.epochs, len(labels), journal, entry, callback
  )


def _with_steps(level, data_rows):
  """The level with a number of steps that does not depend on the devices.

  They may ask for more rows; and in all later phases it is the same.
  """
  steps = math.ceil(data_rows / (level.config.batch_size or data_rows))
  config = dataclasses.replace(
    level.config, steps_per_epoch=level.config.steps_per_epoch or steps
  )
  return level._replace(config=config)


class _Noted(NamedTuple):
  """What a meta loop needs to continue.

  Attributes:
    state: of `bilevel`.
    history: one row per epoch, zeros for those to come.
  """

  state: Any
  history: Float[np.ndarray, "epochs fields"]


def _noted(
  loop: Callable[..., bilevel.BilevelResult],
  like: Any,
  epochs: int,
  count: int,
  journal: Journal,
  entry: str,
  callback: bilevel.Callback,
) -> tuple[UInt8[np.ndarray, "n h w c"], bilevel.History]:
  """Runs a meta loop of `bilevel` from where its journal has seen it last.

  Args:
    loop: takes a state and callbacks.
    like: any state of the same structure.
    epochs: how many the loop has.
    count: real rows of the exemplars.
    journal: see `learn`.
    entry: see `learn`.
    callback: called after each meta epoch.
  """
  fields = bilevel.History._fields

  def run():
    now = _Noted(None, np.zeros((epochs, len(fields))))
    now = journal.resume(entry, like=now._replace(state=like)) or now

    def after_step(state):
      journal.offer(entry, now._replace(state=state))

    def after_epoch(epoch, state, metrics):
      now.history[epoch] = [metrics[field] for field in fields]
      callback(epoch, state, metrics)
      after_step(state)

    result = loop(
      state=now.state, callback=after_epoch, step_callback=after_step
    )
    images = np.asarray(bilevel.to_uint8(result.exemplars.images))
    return {"images": images[:count], "history": now.history}

  done = journal.once(entry, run)
  return done["images"], bilevel.History(*done["history"].T)


def in_chunks(
  classes: int | None,
  stage: Callable[..., tuple[np.ndarray, bilevel.History]],
  key: Array,
  images: UInt8[np.ndarray, "n h w c"],
  labels: Int[np.ndarray, " n"],
  variables: Variables,
  *data: tuple[np.ndarray, ...],
  slots: int,
  class_size: int,
  entry: str,
  callback: bilevel.Callback,
  **options: Any,
) -> tuple[UInt8[np.ndarray, "n h w c"], bilevel.History]:
  """`learn` or `adjust`, for the exemplars of a few classes at a time.

  The base level trains on those alone, and data of the same classes validate
  it: memory for the unroll no longer grows with the number of classes. In the
  softmax they compete with all classes seen.

  Args:
    classes: how many at a time, None for all together.
    stage: `learn` or `adjust`; further arguments are its own.
    slots: most exemplars of a class; fixes the shape of a chunk.
    class_size: images of the largest class; fixes the shape of its data.
    entry: name of the stage in the journal.
    callback: called after each meta epoch, which are counted over all chunks.
  """
  chunks = split_classes(labels, classes)
  if len(chunks) == 1:
    options |= {"entry": entry, "callback": callback}
    return stage(key, images, labels, variables, *data, **options)
  images, histories, done = images.copy(), [], 0
  # Shapes that all chunks share.
  options |= {"rows": len(chunks[0]) * slots}
  if data:
    options["data_rows"] = len(chunks[0]) * class_size
  for number, chunk in enumerate(chunks):
    own = np.isin(labels, chunk)
    images[own], history = stage(
      jax.random.fold_in(key, number),
      images[own],
      labels[own],
      variables,
      *(_rows_of(arrays, chunk) for arrays in data),
      entry=f"{entry}_{number}",
      callback=lambda epoch, *rest, done=done: callback(done + epoch, *rest),
      **options,
    )
    histories.append(history)
    done += len(history.loss)
  learned = [h for h in histories if h.loss.any()] or histories
  mean = lambda *parts: np.mean(parts, axis=0)
  return images, bilevel.History(*map(mean, *learned))


def split_classes(
  labels: Int[np.ndarray, " n"], size: int | None
) -> list[np.ndarray]:
  """The classes among `labels` in groups of `size`; None is one group."""
  names = np.unique(labels)
  return np.split(names, range(size or len(names), len(names), size or 1))


def _rows_of(arrays, classes):
  own = np.isin(arrays[-1], classes)
  return tuple(array[own] for array in arrays)


def diagnose(
  history: bilevel.History, before: np.ndarray, after: np.ndarray
) -> dict[str, Any]:
  """What a report shows of a meta loop: its history and the stored change."""
  change = np.abs(after.astype(np.int32) - before.astype(np.int32))
  return {
    **{name: values.tolist() for name, values in history._asdict().items()},
    "mean_change": float(change.mean()),
    "max_change": int(change.max()),
  }


def start(variables: Variables, level: Level) -> Variables:
  """Θ_i with an identity T over it if that is what the base level trains."""
  if level.config.scope != "transfer":
    return variables
  identity = transfer.init(variables["params"]["backbone"], "in_out")
  return transfer.apply(variables, identity)


def _exemplars(images, labels, rows):
  images = bilevel.from_uint8(_pad(images, rows))
  return bilevel.Exemplars(images, _pad(labels, rows), _real(labels, rows))


def _pad(array, rows):
  padding = [(0, rows - len(array))] + [(0, 0)] * (array.ndim - 1)
  return devices.put(np.pad(array, padding))


def _real(labels, rows):
  return jnp.asarray(np.arange(rows) < len(labels))
