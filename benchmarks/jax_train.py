"""Our training steps, as they run in a phase, for `train_step` and `scaling`."""

import re
import time
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from experiments import launch
from mnemonics_jax import phase
from mnemonics_jax.methods import Classes, LwF
from mnemonics_jax.nn import layers, networks, transfer
from mnemonics_jax.nn.augment import CropFlip, NoAugmentation
from mnemonics_jax.nn.heads import CosineHead
from mnemonics_jax.nn.model import Model
from mnemonics_jax.parallel import mesh
from mnemonics_jax.types import Batch

CLASSES = 100
METHOD = LwF(head=CosineHead())
SCHEDULE = phase.Schedule(epochs=1, learning_rate=0.01, batch_size=128)

# What devices may have to say to each other.
SUMS = ("all-reduce", "reduce-scatter")
COPIES = ("all-gather", "all-to-all", "collective-permute")


def model(network: str) -> Model:
  return Model(networks.NETWORKS[network](), METHOD.head, CLASSES)


def write(path: str, network: str, images: int):
  """Writes a model and its data for a contestant that does not know JAX."""
  rng = np.random.default_rng(0)
  spec = model(network)
  variables = jax.device_get(spec.init(jax.random.key(0)))
  leaves, _ = jax.tree.flatten_with_path(variables)
  name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
  module = spec.network.module
  np.savez(
    path,
    **{name(k): v for k, v in leaves},
    images=rng.integers(0, 256, (images, 32, 32, 3), dtype=np.uint8),
    labels=rng.integers(0, CLASSES, images),
    blocks=module.blocks,
    widths=module.widths,
    mean=module.mean,
    std=module.std,
  )
  return None, {}


class Steps:
  """What `phase.epoch_steps` takes, for one kind of step.

  Args:
    path: of the images.
    network: a name in `networks.NETWORKS`.
    kind: of step, see `train_step`.

  Attributes:
    task: what is trained, and for which loss.
    pool: the images.
    block: the images as batches, in the order in which they are stored.
    key: of the augmentation.
    state: of SGD.
    sums: of what the steps so far have measured.
  """

  def __init__(self, path: str, network: str, kind: str):
    arrays = np.load(path, allow_pickle=False)
    spec = model(network)
    variables = spec.init(jax.random.key(0))
    teacher = spec.init(jax.random.key(0)) if kind == "phase" else None
    scope = "transfer" if kind in ("in_out", "out") else "all"
    if scope == "transfer":
      identity = transfer.init(variables["params"]["backbone"], kind)
      variables = transfer.apply(variables, identity)
    old = jnp.arange(CLASSES) < CLASSES // 2
    classes = Classes(old, ~old)
    self.task = phase.Task(
      classes,
      classes.seen,
      teacher,
      model=spec,
      method=METHOD,
      schedule=SCHEDULE,
      scope=scope,
      augment=CropFlip() if kind == "phase" else NoAugmentation(),
    )
    labels = arrays["labels"].astype(np.int32)
    self.pool = phase.make_pool(arrays["images"], labels, len(labels))
    self.key, images = jax.random.key(1), arrays["images"]
    rows = np.arange(len(labels)).reshape(-1, SCHEDULE.batch_size)
    self.block = phase.Block(
      mesh.put_batches(lambda some: images[some], rows, images.shape[1:]),
      mesh.put_replicated(labels[rows]),
      jnp.int32(0),
    )
    self.state = phase.init_training(
      self.task, jax.tree.map(jnp.array, variables)
    )
    self.sums: dict[str, Any] = phase.zero_metrics(variables, self.task)

  def arguments(self, start: int, stop: int) -> tuple[tuple, dict[str, Any]]:
    """Those of `phase.epoch_steps`, all of them on the device."""
    span = dict(start=jnp.int32(start), stop=jnp.int32(stop))
    arrays = self.state, self.sums, self.block, self.key
    return arrays, {"task": self.task, **span}

  def compile(self) -> Any:
    """The program in which `phase.fit` spends its time."""
    arrays, options = self.arguments(0, 1)
    return phase.epoch_steps.lower(*arrays, **options).compile()

  def run(self, program: Any, start: int, stop: int) -> None:
    """Takes steps, and waits for them; nothing passes to or from the host."""
    arrays, options = self.arguments(start, stop)
    with jax.transfer_guard("disallow"):
      after = jax.block_until_ready(program(*arrays, **options))
    self.state, self.sums = after


def train_steps(
  path: str, network: str, kind: str, steps: int, devices=1, keep_memory=False
):
  """`steps` SGD steps in one call, as `phase.fit` makes them.

  With `keep_memory` the process keeps what it frees, as commands do. Returns the
  sum of their losses.
  """
  if keep_memory:
    launch.keep_freed_memory()
  jax.config.update("jax_num_cpu_devices", devices)
  with mesh.use(devices):
    ours = Steps(path, network, kind)
    began = time.perf_counter()
    program = ours.compile()
    facts: dict[str, Any] = {"compile_seconds": time.perf_counter() - began}
    facts["moves"] = moves(program.as_text())

  def step():
    with mesh.use(devices):
      before = float(ours.sums["loss"])
      ours.run(program, 0, steps)
      return float(ours.sums["loss"]) - before

  return step, facts


def plain_steps(path: str, network: str, kind: str, steps: int):
  """The same with convolutions and their gradients left to XLA.

  One call for each step, because in a loop XLA's own gradients take many times
  longer on a CPU.
  """
  layers.conv2d = _lax_conv  # In this process, which measures nothing else.
  ours = Steps(path, network, kind)
  task = ours.task

  def one_step(state, block, key, i):
    images = task.augment(jax.random.fold_in(key, i), block.images[i])
    batch = Batch(images, block.labels[i])
    state, metrics = phase.train_step(state, batch, task=task)
    return state, metrics["loss"]

  began = time.perf_counter()
  program = (
    jax.jit(one_step, donate_argnums=0)
    .lower(ours.state, ours.block, ours.key, jnp.int32(0))
    .compile()
  )
  facts = {"compile_seconds": time.perf_counter() - began}

  def step():
    losses = []
    for i in range(steps):
      done = program(ours.state, ours.block, ours.key, jnp.int32(i))
      ours.state, loss = jax.block_until_ready(done)
      losses.append(float(loss))
    return sum(losses)

  return step, facts


def moves(text: str) -> dict[str, int]:
  """How often a compiled program sums over devices, or copies arrays."""
  return {
    name: len(re.findall(rf"{name}(?:-start)?\(", text))
    for name in (*SUMS, *COPIES)
  }


def _lax_conv(x, w, *, stride=1, padding=None):
  padding = len(w) // 2 if padding is None else padding
  pads = ((padding, padding), (padding, padding))
  return lax.conv_general_dilated(
    x, w, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
  )


def gemm(size: int, repeats: int):
  """Matrix products, the most arithmetic this machine can do."""
  a = jnp.ones((size, size))
  program = jax.jit(lambda a: a @ a).lower(a).compile()

  def step():
    for _ in range(repeats):
      jax.block_until_ready(program(a))

  step()
  return step, {}
