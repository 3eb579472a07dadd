"""Our training steps, as they run in a phase, and where their time goes.

For `train_step` and `scaling`: functions that return a step are contestants' factories.
"""

import bisect
from collections import defaultdict
import glob
import math
import re
import tempfile
import time
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from benchmarks.jax_meta import save
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
  save(
    path,
    spec,
    spec.init(jax.random.key(0)),
    images=rng.integers(0, 256, (images, 32, 32, 3), dtype=np.uint8),
    labels=rng.integers(0, CLASSES, images),
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


# The profile, by XLA's own profiler.

FORWARD = "convolutions, forward"
BACKWARD = "convolutions, backward"
KERNELS = "of these, gradients of kernels"
REST = "batch norm, ReLU, update, the rest"


def profile(path: str, network: str, kind: str, steps: int):
  """Seconds of an SGD step in which some thread worked on each of its parts."""
  ours = Steps(path, network, kind)
  program = ours.compile()
  parts = _parts(program.as_text())
  run = lambda: ours.run(program, 0, steps)

  run()  # The first call is slower.

  def step():
    spans = _trace(run, parts)
    order = (FORWARD, BACKWARD, KERNELS, REST)
    return {part: _union(spans[part]) / steps / 1e9 for part in order}

  return step, {}


def epoch(path: str, network: str):
  """Seconds from the first to the last step of `phase.fit`, and in steps."""
  ours = Steps(path, network, "phase")
  _, entry = ours.compile().as_text().split("\nENTRY ")
  (loop,) = re.findall(r"%(while\S*) = ", entry)

  def run():
    begin, key = ours.state.variables, jax.random.key(0)
    jax.block_until_ready(phase.fit(key, begin, ours.pool, ours.task))

  run()  # compiles

  def step():
    spans = _trace(run, {loop: ("steps",)})["steps"]
    starts, stops = zip(*spans, strict=True)
    return (max(stops) - min(starts)) / 1e9, _union(spans) / 1e9

  return step, {}


def _trace(run, parts):
  """Runs it, and for each part of a step when something worked on it."""
  options = jax.profiler.ProfileOptions()
  options.python_tracer_level = 0  # It would slow down what is between steps.
  with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder, profiler_options=options):
      run()
    (file,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    trace = jax.profiler.ProfileData.from_file(file)
  begun, ended = defaultdict(list), defaultdict(list)
  for plane in trace.planes:
    for line in plane.lines:
      for event in line.events:
        if event.name in parts:
          begun[event.name].append((event.start_ns, event.end_ns))
        elif event.name.startswith((_END + "conv", _END + "while")):
          ended[event.name.removeprefix(_END)].append(event.start_ns)
  spans = defaultdict(list)
  for name, times in begun.items():
    for part in parts[name]:
      spans[part] += _until(sorted(times), sorted(ended[name]))
  return spans


_NATIVE = {
  "conv2d": (FORWARD,),
  "conv2d_dx": (BACKWARD,),
  "conv2d_dw": (BACKWARD, KERNELS),
}
# Convolutions and loops may go on in other threads when their event is over.
_END = "end: "


def _until(times, ends):
  """Each time span up to the first end that comes before the next begins."""
  followers = [start for start, _ in times[1:]] + [math.inf]
  for (start, stop), following in zip(times, followers, strict=True):
    at = bisect.bisect_left(ends, start)
    late = ends[at] if at < len(ends) and ends[at] < following else stop
    yield start, max(stop, late)


def _parts(text):
  """The parts of a step to which each instruction that is traced belongs."""
  native = re.findall(r'%(\S+) = .*"mnemonics-[^"]*-(conv2d\w*)"', text)
  parts = {name: _NATIVE[of] for name, of in native}
  for name, of in re.findall(r'%(\S+) = .*op_name="([^"]*)"', text):
    if name in parts:
      continue
    # Gradients of kernels are loops of their own, inside the loop over steps.
    if re.search(r"/Conv_\d+/.*while", of):
      if name.startswith("while"):
        parts[name] = (BACKWARD, KERNELS)
    elif re.match("ynn_fusion|conv", name):
      parts[name] = (BACKWARD if "transpose(" in of else FORWARD,)
    elif not name.startswith("while"):
      parts[name] = (REST,)
  return parts


def _union(spans):
  """The length of what intervals cover together."""
  total = end = 0
  for start, stop in sorted(spans):
    total += max(0, stop - max(start, end))
    end = max(end, stop)
  return total
