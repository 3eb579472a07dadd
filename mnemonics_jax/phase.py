"""One phase of mnemonics training: Algorithm 1 of Liu et al. 2020.

`run_phase(state, data, config)` knows nothing of files or flags;
whoever calls it saves the state and writes down the result.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Int, UInt8
import numpy as np

from mnemonics_jax import devices, training, transfer
from mnemonics_jax import exemplars as exemplars_lib
from mnemonics_jax import memory as memory_lib
from mnemonics_jax.augment import Augmentation, CropFlip, NoAugmentation
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.evaluate import class_means, evaluate, extract
from mnemonics_jax.holdout import hold_out
from mnemonics_jax.journal import Journal
from mnemonics_jax.keys import Keys
from mnemonics_jax.methods import Classes, Method
from mnemonics_jax.model import Model
from mnemonics_jax.protocol import MemoryPolicy, PerClass
from mnemonics_jax.training import Schedule
from mnemonics_jax.types import (
  PhaseResult,
  PhaseState,
  Report,
  StepReport,
  Variables,
)


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
    later_capacity: most images that validate exemplars after phase 0.
    class_size: images of the largest class.
    slots: image slots per class in the memory.
    new_slots: most exemplars that the classes of one later phase may have.
    old_slots: most exemplars that are ever old.
    policy: how many exemplars each class may keep.
    exemplars: how new exemplars are made: `random` and `herding` choose among
      the images, `mnemonics` learns them.
    init_exemplars: start images of `mnemonics`: `random` or `herding`.
    adjust: whether old exemplars are adjusted in every phase; each time they
      may move by the trust region of `bilevel` again.
    bilevel: how exemplars are learned and adjusted.
    augment_exemplars: whether exemplars are augmented while they are learned.
    exemplar_chunk: classes whose exemplars are learned at a time, None for all.
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
  later_capacity: int
  class_size: int
  slots: int
  new_slots: int
  old_slots: int
  policy: MemoryPolicy = PerClass(20)
  exemplars: str = "herding"
  init_exemplars: str = "herding"
  adjust: bool = False
  bilevel: BilevelConfig = BilevelConfig()
  augment_exemplars: bool = True
  exemplar_chunk: int | None = None
  transfer: str = "none"
  finetune: str = "none"
  base: Schedule = Schedule()
  train: Schedule = Schedule()
  balance: Schedule = Schedule(50, 0.01, ())
  augment: Augmentation = CropFlip()

  def __post_init__(self):
    for name, choices in _CHOICES.items():
      if getattr(self, name) not in choices:
        raise ValueError(
          f"{name}={getattr(self, name)!r}: choose one of {', '.join(choices)}."
        )

  @property
  def start_images(self) -> str:
    """How exemplars are chosen among the images, before any learning."""
    learned = self.exemplars == "mnemonics"
    return self.init_exemplars if learned else self.exemplars

  @property
  def learns_on_features(self) -> bool:
    """Whether features of the new images are what exemplars are learned from."""
    learned = self.exemplars == "mnemonics"
    return learned and exemplar_level(self).config.on_features


_CHOICES = {
  "exemplars": ("random", "herding", "mnemonics"),
  "init_exemplars": ("random", "herding"),
  "transfer": transfer.KINDS,
  "finetune": ("none", "head", "all"),
}


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
  journal: Journal | None = None,
  train: Callable[..., Variables] | None = None,
) -> tuple[PhaseState, PhaseResult]:
  """Learns the new classes in `data` and tests on all classes seen.

  Args:
    state: what the phases before have left.
    data: what this one may look at.
    config: what it does.
    report: receives a `StepReport` as it goes.
    journal: what this phase has done before, if it was interrupted.
    train: the model level instead of `train_model`, called like it.
  """
  model, method = config.model, config.method
  n_seen = state.classes_seen + data.new_classes
  classes = _classes(state, data, config)
  keys = Keys(state.key, state.phase)
  journal, train = journal or Journal(), train or train_model
  begin = lambda stage: report(StepReport(state.phase, stage, 0, 1, 0, 1))
  diagnostics, changed = {}, {}

  # 1. Model level: train Θ on the old exemplars and the new data.
  begin("train")
  variables = journal.once(
    "train", lambda: train(state, data, config, report, journal)
  )
  variables = jax.tree.map(devices.put, variables)

  # 2. Exemplars of the new classes: chosen, then perhaps learned.
  begin("exemplars")
  new = data.labels >= state.classes_seen  # The upper bound sees old data, too.
  new_images, new_labels = data.images[new], data.labels[new]
  new_features = None
  if config.start_images == "herding" or config.learns_on_features:
    new_features, _ = extract(model, method, variables, new_images)
  picks = exemplars_lib.select(
    keys.numpy("select"),
    new_features,
    new_labels,
    range(state.classes_seen, n_seen),
    strategy=config.start_images,
    allowance=config.policy.allowance(n_seen),
  )
  images, labels = new_images[picks], new_labels[picks]
  optimize = functools.partial(
    exemplars_lib.in_chunks,
    config.exemplar_chunk,
    level=exemplar_level(config),
    seen=classes.seen,
    slots=config.slots,
    class_size=config.class_size,
    journal=journal,
  )
  if config.exemplars == "mnemonics":
    start = images
    inputs = new_features if config.learns_on_features else new_images
    valid = _with_old((inputs, new_labels), state, config, variables)
    later = state.classes_seen > 0
    images, history = optimize(
      exemplars_lib.learn,
      keys("exemplars"),
      start,
      labels,
      variables,
      valid,
      rows=config.new_slots if later else len(labels),
      data_rows=config.later_capacity if later else len(valid[1]),
      entry="exemplars",
      callback=_meta_report(report, state.phase, "exemplars", config, labels),
    )
    diagnostics["exemplars"] = exemplars_lib.diagnose(history, start, images)
    changed["exemplars"] = (start, images, labels)

  # 3. Adjust the old exemplars, one half validated by the other.
  memory = state.memory
  if config.adjust and memory.counts.sum() > 1 and not method.joint:
    begin("adjust")
    start, old_labels = memory_lib.flat(memory)
    adjusted, history = optimize(
      exemplars_lib.adjust,
      keys("adjust"),
      start,
      old_labels,
      variables,
      rows=config.old_slots,
      entry="adjust",
      callback=_meta_report(
        report, state.phase, "adjust", config, old_labels, parts=2
      ),
    )
    diagnostics["adjust"] = exemplars_lib.diagnose(history, start, adjusted)
    changed["adjust"] = (start, adjusted, old_labels)
    memory = memory_lib.replace(memory, adjusted)

  # 4. Store them; a total budget shrinks every class to its new share.
  for label in range(state.classes_seen, n_seen):
    memory = memory_lib.insert(memory, label, images[labels == label])
  memory = memory_lib.discard(
    keys.numpy("discard"), memory, config.policy.allowance(n_seen)
  )

  begin("evaluate")
  exemplars = memory_lib.flat(memory)
  test = (data.test_images, data.test_labels)
  measure = functools.partial(
    evaluate, model, method, test=test, exemplars=exemplars, seen=n_seen
  )
  trained_test = final_test = measure(variables)

  # 5. Fine-tune on the memory, in which all classes count alike.
  if config.finetune != "none" and not method.joint:
    begin("finetune")
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
      phase=state.phase,
      stage="finetune",
      journal=journal,
    )
    begin("evaluate")
    only_head = config.finetune == "head"
    final_test = measure(
      variables, same_backbone=trained_test if only_head else None
    )

  # 6. Hand over.
  result = PhaseResult(
    phase=state.phase,
    classes_seen=n_seen,
    confusion={
      "trained": trained_test.confusion,
      "final": final_test.confusion,
    },
    memory_images=int(memory.counts.sum()),
    memory_bytes=memory_lib.size_bytes(memory),
    diagnostics=diagnostics,
    changed=changed,
    test_features=(final_test.features, data.test_labels),
    exemplar_features=(final_test.exemplar_features, exemplars[1]),
  )
  after = state._replace(
    variables=variables,
    memory=memory,
    phase=state.phase + 1,
    classes_seen=n_seen,
  )
  return after, result


def train_model(
  state: PhaseState,
  data: PhaseData,
  config: Config,
  report: Report = lambda _: None,
  journal: Journal | None = None,
) -> Variables:
  """Θ_i: the model level of a phase, with weight transfer if configured."""
  model, method = config.model, config.method
  n_old = state.classes_seen
  classes = _classes(state, data, config)
  keys = Keys(state.key, state.phase)
  incremental = n_old > 0 and not method.joint
  old = memory_lib.flat(state.memory)
  if method.joint:  # The old images themselves are in `data`.
    old = (old[0][:0], old[1][:0])
  trained_on, held_out = hold_out(
    keys.numpy("holdout"), old, (data.images, data.labels), method.holdout
  )

  variables, teacher, scope = state.variables, None, "all"
  if incremental:
    teacher = variables

    def means():
      features, _ = extract(model, method, teacher, data.images)
      return class_means(features, data.labels, model.classes)

    variables = method.begin_phase(variables, means, classes)
  if incremental and config.transfer != "none":
    backbone = variables["params"]["backbone"]
    identity = transfer.init(backbone, config.transfer)
    variables, scope = transfer.apply(variables, identity), "transfer"
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
    phase=state.phase,
    journal=journal,
  )
  variables = transfer.fold(variables)
  if held_out is not None:
    _, logits = extract(model, method, variables, held_out[0])
    variables = method.calibrate(variables, logits, held_out[1], classes)
    if not training.finite(variables):
      raise FloatingPointError("Bias correction diverged.")
  return variables


def _classes(state, data, config):
  """Masks of old and new classes."""
  index = np.arange(config.model.classes)
  n_old = state.classes_seen
  old, seen = index < n_old, index < n_old + data.new_classes
  return Classes(jnp.asarray(old), jnp.asarray(seen & ~old))


def _with_old(new, state, config, variables):
  """Inputs and labels of the new data, and of the old exemplars."""
  inputs, labels = memory_lib.flat(state.memory)
  if config.learns_on_features:
    inputs, _ = extract(config.model, config.method, variables, inputs)
  return tuple(map(np.concatenate, zip(new, (inputs, labels), strict=True)))


def exemplar_level(config: Config) -> exemplars_lib.Level:
  """Model and recipe of the exemplar level."""
  augment = config.augment if config.augment_exemplars else NoAugmentation()
  return exemplars_lib.configure(
    config.bilevel, config.model, config.method, augment
  )


def _meta_report(report, phase, stage, config, labels, parts=1):
  """Meta epochs as `StepReport`s."""
  chunks = exemplars_lib.split_classes(labels, config.exemplar_chunk)
  epochs = parts * len(chunks) * config.bilevel.epochs

  def tell(epoch, _, metrics):
    report(StepReport(phase, stage, epoch, epochs, 1, 1, metrics))

  return tell
