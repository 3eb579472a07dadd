"""The stages that move Θ: training on new data, fine-tuning on the memory."""

import functools

import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data import images
from mnemonics_jax.memory import Memory
from mnemonics_jax.nn import transfer
from mnemonics_jax.nn.augment import NoAugmentation
from mnemonics_jax.phase import draws, evaluate, sgd
from mnemonics_jax.phase.context import Phase, Stage
from mnemonics_jax.phase.evaluate import extract, extract_features
from mnemonics_jax.phase.feed import make_feed
from mnemonics_jax.readouts import class_means
from mnemonics_jax.types import Variables


def train_model(phase: Phase, stage: Stage = Stage()) -> Variables:
  """Θ_i: the model level of a phase, with weight transfer if configured."""
  config, classes = phase.config, phase.classes
  model, method = config.model, config.method
  variables, teacher, scope = begin_model(phase), None, "all"
  if phase.incremental:
    teacher = phase.state.variables
    if config.transfer != "none":
      backbone = variables["params"]["backbone"]
      identity = transfer.init(backbone, config.transfer)
      variables, scope = transfer.apply(variables, identity), "transfer"
  rows = method.trainable_rows(classes) if phase.incremental else classes.seen
  trained_on, labels = _trained_on(phase)
  quota = None
  if phase.incremental:
    quota = draws.quotas(
      config.rehearsal, labels, phase.classes_old, model.classes
    )
  feed = make_feed(trained_on, labels, config.sizes.pool, config.stream, quota)
  # Views that differ from epoch to epoch are augmented already.
  augment = NoAugmentation() if images.varies(trained_on) else config.augment
  task = sgd.Task(
    classes,
    rows,
    teacher,
    model=model,
    method=method,
    schedule=config.train if phase.classes_old else config.base,
    scope=scope,
    augment=augment,
  )
  variables = sgd.fit(phase.keys("train"), variables, feed, task, stage)
  variables = transfer.fold(variables)
  if phase.incremental and method.holdout:
    held_out, labels = _held_out(phase)
    _, logits = extract(model, method, variables, held_out)
    variables = method.calibrate(variables, logits, labels, classes)
    if not sgd.finite(variables):
      raise FloatingPointError("Bias correction diverged.")
  return variables


def begin_model(phase: Phase) -> Variables:
  """Θ_{i-1}, prepared by the method for the new classes."""
  variables = phase.state.variables
  if not phase.incremental:
    return variables
  means = functools.partial(_new_class_means, phase)
  return phase.config.method.begin_phase(variables, means, phase.classes)


def _trained_on(phase):
  """Old exemplars and new images, without those that are held out."""
  kept = ~phase.held_out
  new = phase.new_images[kept], phase.data.labels[kept]
  if phase.config.method.joint:  # The old images themselves are in `data`.
    return new
  old = _trainable(phase, phase.state.memory)
  return _together(old, new)


def _held_out(phase):
  """As many held-out images of every class, old and new."""
  new_labels, held = phase.data.labels, phase.held_out
  exemplars, labels = memory_lib.flat(phase.state.memory)
  fraction, allowance = phase.config.method.holdout, phase.allowance
  old = draws.held_in_memory(labels, fraction, allowance)
  if phase.bytes_allowance is not None:
    # How many of a new class will fit is not known yet: as many as of others.
    held = draws.first_held(new_labels, held, old.sum() / phase.classes_old)
  return _together(
    (exemplars[old], labels[old]), (phase.new_images[held], new_labels[held])
  )


def _trainable(phase, memory):
  """The exemplars that the method may train on."""
  exemplars, labels = memory_lib.flat(memory)
  kept = ~draws.held_in_memory(labels, phase.config.method.holdout)
  if kept.all():  # No copy: they may be on a disk.
    return exemplars, labels
  return exemplars[kept], labels[kept]


def _together(*parts):
  parts, labels = zip(*parts, strict=True)
  return images.concatenate(parts), np.concatenate(labels)


def _new_class_means(phase):
  """Mean features of the new classes, as the old model sees them."""
  model, labels = phase.config.model, phase.data.labels
  features_of = functools.partial(
    extract_features, model, phase.config.method, phase.state.variables
  )
  starts = range(0, len(labels), evaluate.TOGETHER)
  parts = [slice(start, start + evaluate.TOGETHER) for start in starts]
  return class_means(
    ((features_of(phase.new_images[part]), labels[part]) for part in parts),
    model.classes,
  )


def finetune(
  phase: Phase, variables: Variables, memory: Memory, stage: Stage = Stage()
) -> Variables:
  """Θ_i tuned on the memory, in which all classes count alike."""
  config, rows = phase.config, phase.classes.seen
  teacher, classes = config.method.begin_finetune(variables, phase.classes)
  task = sgd.Task(
    classes,
    rows,
    teacher,
    model=config.model,
    method=config.method,
    schedule=config.balance,
    scope=config.finetune,
    augment=config.augment,
  )
  kept, labels = _trainable(phase, memory)
  quota = draws.equal_quotas(labels, config.model.classes)
  feed = make_feed(kept, labels, config.sizes.pool, config.stream, quota)
  return sgd.fit(phase.keys("finetune"), variables, feed, task, stage)
