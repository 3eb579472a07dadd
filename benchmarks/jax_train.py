"""Our training steps, as they run in a phase, for `train_step` and `scaling`."""

import re
import time
import types
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from mnemonics_jax import devices as devices_lib
from mnemonics_jax import networks, training, transfer
from mnemonics_jax.augment import CropFlip, NoAugmentation
from mnemonics_jax.heads import CosineHead
from mnemonics_jax.methods import Classes, LwF
from mnemonics_jax.model import Model

CLASSES = 100
METHOD = LwF(head=CosineHead())
SCHEDULE = training.Schedule(epochs=1, batch_size=128)
RATE = 0.01

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


class _Task:
  """Everything that `training._steps` takes, for one kind of step."""

  def __init__(self, path, network, kind):
    arrays = np.load(path, allow_pickle=False)
    spec = model(network)
    variables = spec.init(jax.random.key(0))
    scope = "transfer" if kind in ("in_out", "out") else "all"
    if scope == "transfer":
      identity = transfer.init(variables["params"]["backbone"], kind)
      variables = transfer.apply(variables, identity)
    old = jnp.arange(CLASSES) < CLASSES // 2
    self.classes = Classes(old, ~old)
    self.teacher = spec.init(jax.random.key(0)) if kind == "phase" else None
    labels = arrays["labels"].astype(np.int32)
    self.pool = training.make_pool(arrays["images"], labels, len(labels))
    names = dict(model=spec, method=METHOD, scope=scope)
    self.static = names | dict(
      schedule=SCHEDULE,
      augment=CropFlip() if kind == "phase" else NoAugmentation(),
    )
    opt_state = training._optimizer(SCHEDULE).init(
      training.trainable(variables, scope)
    )
    sums = training._zero_metrics(
      variables, self.teacher, self.pool, self.classes, **names
    )
    self.carry: Any = jax.tree.map(jnp.array, (variables, opt_state, sums))
    self.order = jnp.arange(len(labels))

  def args(self, start, stop):
    return jax.tree.map(
      jnp.asarray,
      (
        *self.carry, self.teacher, self.pool, self.order, start, stop, RATE,
        jax.random.key(1), self.classes, self.classes.seen,
      ),
    )  # fmt: skip


def train_steps(
  path: str, network: str, kind: str, steps: int, devices=1, plain_conv=False
):
  """`steps` SGD steps in one call, as `training.fit` makes them.

  Returns the sum of their losses. `plain_conv` leaves convolutions and their
  gradients to XLA and makes one call for each step, because in a loop XLA's own
  gradients take many times longer on a CPU.
  """
  jax.config.update("jax_num_cpu_devices", devices)
  at_once = steps
  if plain_conv:
    networks.conv2d, at_once = _lax_conv, 1
    one_step = lambda start, stop, body, carry: body(start, carry)
    training.lax = types.SimpleNamespace(fori_loop=one_step)
  with devices_lib.use(devices):
    task = _Task(path, network, kind)
    began = time.perf_counter()
    args = task.args(0, 1)
    program = training._steps.lower(*args, **task.static).compile()
    facts = {"compile_seconds": time.perf_counter() - began}
    facts["moves"] = moves(program.as_text())

  def step():
    with devices_lib.use(devices):
      before = float(task.carry[2]["loss"])
      for start in range(0, steps, at_once):
        args = task.args(start, start + at_once)
        with jax.transfer_guard("disallow"):
          task.carry = jax.block_until_ready(program(*args))
      return float(task.carry[2]["loss"]) - before

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
