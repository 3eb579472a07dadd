"""One phase of mnemonics training: Algorithm 1 of Liu et al. 2020.

`run_phase(state, data, config)` knows nothing of files or flags;
whoever calls it saves the state and writes down the result.
"""

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Int, UInt8
import numpy as np

from mnemonics_jax import exemplars as exemplars_lib
from mnemonics_jax import memory as memory_lib
from mnemonics_jax import selection, training
from mnemonics_jax import transfer as transfer_lib
from mnemonics_jax.augment import Augmentation, CropFlip
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.evaluate import class_means, evaluate, extract
from mnemonics_jax.methods import Classes, Method
from mnemonics_jax.model import Model
from mnemonics_jax.protocol import MemoryPolicy, PerClass
from mnemonics_jax.training import Schedule
from mnemonics_jax.types import PhaseResult, PhaseState, Report, StepReport


class PhaseData(NamedTuple):
  """What one phase may look at.

  Attributes:
    images: training images of the new classes (of all seen ones if the method
      is the joint upper bound).
    labels: their classes, in learned order.
    new_classes: how many classes arrive.
    test_images: test images of all classes seen, new ones included.
    test_labels: their classes.
  """

  images: UInt8[np.ndarray, "n h w c"]
  labels: Int[np.ndarray, " n"]
  new_classes: int
  test_images: UInt8[np.ndarray, "m h w c"]
  test_labels: Int[np.ndarray, " m"]


@dataclasses.dataclass(frozen=True)
class Config:
  """Everything that decides what a phase does; hashable.

  Attributes:
    model: network and head.
    method: the base method.
    capacity: most images a phase trains on; fixes the shape of the pool.
    slots: image slots per class in the memory.
    policy: how many exemplars each class may keep.
    new_slots: most exemplars that the classes of one later phase may have.
    exemplars: how new exemplars are made: `random` and `herding` choose among
      the images, `mnemonics` learns them.
    init_exemplars: start images of `mnemonics`: `random` or `herding`.
    adjust: whether old exemplars are adjusted in every phase.
    bilevel: how exemplars are learned and adjusted.
    transfer: `none`, or scale/shift weight transfer `in_out` or `out`.
    finetune: what the balanced fine-tune trains: `none`, `head` or `all`.
    base: schedule of phase 0.
    train: schedule of the later phases.
    balance: schedule of the fine-tune.
    augment: augmentation of training images.
  """

  model: Model
  method: Method
  capacity: int
  slots: int
  new_slots: int
  policy: MemoryPolicy = PerClass(20)
  exemplars: str = "herding"
  init_exemplars: str = "herding"
  adjust: bool = False
  bilevel: BilevelConfig = BilevelConfig()
  transfer: str = "none"
  finetune: str = "none"
  base: Schedule = Schedule()
  train: Schedule = Schedule()
  balance: Schedule = Schedule(50, 0.01, ())
  augment: Augmentation = CropFlip()


def begin_run(seed: int, config: Config) -> PhaseState:
  """The state before phase 0: Θ at random, an empty memory."""
  model = config.model
  key, init_key = jax.random.split(jax.random.key(seed))
  variables = model.init(init_key)
  variables = config.method.begin_run(variables)
  shape = model.network.image_shape
  memory = memory_lib.empty(model.classes, config.slots, shape)
  return PhaseState(variables, memory, key, phase=0, classes_seen=0)


def run_phase(
  state: PhaseState,
  data: PhaseData,
  config: Config,
  report: Report = lambda _: None,
) -> tuple[PhaseState, PhaseResult]:
  """Learns the new classes in `data` and tests on all classes seen."""
  model, method = config.model, config.method
  phase, n_old = state.phase, state.classes_seen
  n_seen = n_old + data.new_classes
  index = np.arange(model.classes)
  classes = Classes(
    jnp.asarray(index < n_old), jnp.asarray((n_old <= index) & (index < n_seen))
  )
  keys = _Keys(state.key, phase)
  clock = _Clock()
  test = (data.test_images, data.test_labels)

  # 1. Model level: train Θ on the old exemplars and the new data.
  # The joint upper bound has the old images themselves in `data`.
  nothing = memory_lib.empty(model.classes, config.slots, test[0].shape[1:])
  old = memory_lib.flat(nothing if method.joint else state.memory)
  trained_on, held_out = _hold_out(keys, old, data, n_old, method.holdout)
  incremental = n_old > 0 and not method.joint
  variables, teacher, scope = state.variables, None, "all"
  if incremental:
    teacher = variables
    features, _ = extract(model, method, teacher, data.images)
    means = class_means(features, data.labels, model.classes)
    variables = method.begin_phase(variables, means, classes)
    if config.transfer != "none":
      backbone = variables["params"]["backbone"]
      identity = transfer_lib.init(backbone, config.transfer)
      variables = transfer_lib.apply(variables, identity)
      scope = "transfer"
  variables = training.fit(
    keys("train"),
    variables,
    training.make_pool(*trained_on, config.capacity),
    model=model,
    method=method,
    schedule=config.train if n_old else config.base,
    classes=classes,
    rows=method.trainable_rows(classes) if incremental else classes.seen,
    teacher=teacher,
    augment=config.augment,
    scope=scope,
    report=report,
    phase=phase,
  )
  variables = transfer_lib.fold(variables)
  if held_out is not None:
    _, logits = extract(model, method, variables, held_out[0])
    variables = method.calibrate(variables, logits, held_out[1], classes)
  clock("train")

  # 2. Exemplars of the new classes.
  memory = state.memory
  features, _ = extract(model, method, variables, data.images)
  picks = _select(keys, features, data.labels, range(n_old, n_seen), config)
  images, labels = data.images[picks], data.labels[picks]
  learning: dict[str, Any] = dict(
    settings=config.bilevel,
    model=model,
    method=method,
    augment=config.augment,
    seen=classes.seen,
  )
  diagnostics = {}
  if config.exemplars == "mnemonics":
    # ... learned on the data of those classes, starting from `picks`.
    start = images
    images, history = exemplars_lib.learn(
      keys("exemplars"),
      images,
      labels,
      variables,
      (data.images, features, data.labels),
      **learning,
      rows=config.new_slots if n_old else len(labels),
      data_rows=config.capacity,
      callback=_meta_report(report, phase, "exemplars", config.bilevel.epochs),
    )
    diagnostics["exemplars"] = _diagnose(history, start, images)

  # 3. Adjust the old exemplars, one half validated by the other.
  if config.adjust and n_old and not method.joint:
    adjusted, history = exemplars_lib.adjust(
      keys("adjust"),
      *old,
      variables,
      **learning,
      rows=model.classes * config.slots,
      callback=_meta_report(report, phase, "adjust", 2 * config.bilevel.epochs),
    )
    memory = memory_lib.replace(memory, adjusted)
    diagnostics["adjust"] = _diagnose(history, old[0], adjusted)
  for label in range(n_old, n_seen):
    memory = memory_lib.insert(memory, label, images[labels == label])

  # 4. A total budget shrinks every class to its new share.
  allowance = config.policy.allowance(n_seen)
  memory = memory_lib.discard(keys.numpy("discard"), memory, allowance)
  exemplars = memory_lib.flat(memory)
  clock("exemplars")
  measure = lambda v: evaluate(model, method, v, test, exemplars, n_seen)
  confusion = {"trained": measure(variables)}
  clock("evaluate")

  # 5. Fine-tune on the memory, in which all classes count alike.
  if config.finetune != "none":
    variables = training.fit(
      keys("finetune"),
      variables,
      training.make_pool(*exemplars, config.capacity),
      model=model,
      method=method,
      schedule=config.balance,
      classes=classes,
      rows=classes.seen,
      augment=config.augment,
      scope=config.finetune,
      report=report,
      phase=phase,
      stage="finetune",
    )
    clock("finetune")

  # 6. Evaluate and hand over.
  final = config.finetune != "none"
  confusion["final"] = measure(variables) if final else confusion["trained"]
  clock("evaluate")
  result = PhaseResult(
    phase=phase,
    classes_seen=n_seen,
    confusion=confusion,
    memory_images=int(memory.counts.sum()),
    memory_bytes=memory_lib.size_bytes(memory),
    seconds=clock.seconds,
    diagnostics=diagnostics,
  )
  return PhaseState(variables, memory, state.key, phase + 1, n_seen), result


def _select(keys, features, labels, new, config):
  """Rows of the images that the exemplars of `new` classes start from."""
  rng = keys.numpy("select")
  chosen = config.exemplars
  if chosen == "mnemonics":
    chosen = config.init_exemplars
  allowance = config.policy.allowance(new.stop)
  picks = []
  for label in new:
    own = np.flatnonzero(labels == label)
    if chosen == "herding":
      picks.append(own[selection.herding(features[own], allowance)])
    else:
      picks.append(own[selection.random(rng, len(own), allowance)])
  return np.concatenate(picks)


def _meta_report(report, phase, stage, epochs):
  """Meta epochs as `StepReport`s."""

  def tell(epoch, _, metrics):
    report(StepReport(phase, stage, epoch, epochs, 1, 1, metrics))

  return tell


def _diagnose(history, before, after):
  """What the report shows of a meta loop."""
  change = np.abs(after.astype(np.int32) - before.astype(np.int32))
  return {
    **{name: values.tolist() for name, values in history._asdict().items()},
    "mean_change": float(change.mean()),
    "max_change": int(change.max()),
  }


class _Keys:
  """Independent randomness for each purpose within a phase."""

  _PURPOSES = (
    "train", "holdout", "select", "exemplars", "adjust", "discard", "finetune",
  )  # fmt: skip

  def __init__(self, root, phase):
    self._key = jax.random.fold_in(root, phase)

  def __call__(self, purpose):
    return jax.random.fold_in(self._key, self._PURPOSES.index(purpose))

  def numpy(self, purpose):
    return np.random.default_rng(np.asarray(jax.random.key_data(self(purpose))))


class _Clock:
  """Seconds spent in each stage."""

  def __init__(self):
    self.seconds = {}
    self._last = time.perf_counter()

  def __call__(self, stage):
    now = time.perf_counter()
    self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
    self._last = now


def _hold_out(keys, old, data, n_old, fraction):
  """Splits old exemplars and new data into a training and a held-out set.

  A share `fraction` of each old class's exemplars is held out, at least one
  if that leaves one to train on, and as many images of every new class.
  """
  images = np.concatenate([old[0], data.images])
  labels = np.concatenate([old[1], data.labels])
  if not (fraction and n_old):
    return (images, labels), None
  rng = keys.numpy("holdout")
  counts = np.bincount(old[1], minlength=n_old)
  shares = np.minimum(np.maximum(1, np.round(fraction * counts)), counts - 1)
  share_new = int(shares.max())
  if not share_new:
    return (images, labels), None
  held = np.zeros(len(labels), bool)
  for label in range(n_old + data.new_classes):
    own = np.flatnonzero(labels == label)
    share = int(shares[label]) if label < n_old else share_new
    held[rng.permutation(own)[:share]] = True
  return (images[~held], labels[~held]), (images[held], labels[held])
