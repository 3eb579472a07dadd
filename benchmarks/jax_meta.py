"""Our meta steps, for `hypergradient`: each function is a contestant's factory."""

import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import BilevelConfig, Exemplars, Features
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.heads import CosineHead
from mnemonics_jax.nn.model import Model, backbone
from mnemonics_jax.parallel import mesh


@dataclasses.dataclass(frozen=True)
class Problem:
  """Sizes of a meta step; all arrays are random.

  Attributes:
    network: a name in `networks.NETWORKS`.
    width: channels of its first stage.
    classes: rows of the cosine head.
    exemplars: number of exemplars.
    valid: number of validation images.
    inner_lr: step size of the base level's SGD.
  """

  network: str = "resnet32"
  width: int = 16
  classes: int = 10
  exemplars: int = 100
  valid: int = 128
  inner_lr: float = 0.01

  @property
  def model(self) -> Model:
    network = networks.NETWORKS[self.network](width=self.width)
    return Model(network, CosineHead(), self.classes)

  def apply(self, variables, images):
    return self.model.apply(variables, images)[0].logits

  def features(self, variables, images):
    return self.model.network.features(backbone(variables), images)[0]

  def head(self, params, features):
    return self.model.head.scores(params, features).logits

  def config(self, **changes) -> BilevelConfig:
    return BilevelConfig(scope="all", inner_lr=self.inner_lr, **changes)

  def draw(self):
    """Variables, exemplars and a validation batch."""
    keys = jax.random.split(jax.random.key(0), 4)
    variables = self.model.init(keys[0])
    prototypes = self._patches(keys[1], self.classes)

    def images(key, count):
      labels = jnp.arange(count) % self.classes
      patches = (prototypes[labels] + self._patches(key, count)) / 2
      return Exemplars(patches.repeat(8, 1).repeat(8, 2), labels)

    return (
      variables,
      images(keys[2], self.exemplars),
      images(keys[3], self.valid),
    )

  def _patches(self, key, count):
    return jax.random.uniform(key, (count, 4, 4, 3))


def write(path: str, problem: dict):
  """Writes the problem's arrays for a contestant that does not know JAX.

  The variables resemble those of a trained model: statistics of the images,
  their class means in the head, weak residual branches. On a random one SGD
  magnifies rounding errors even more.
  """
  spec = Problem(**problem)
  variables, exemplars, valid = spec.draw()
  variables = jax.tree_util.tree_map_with_path(_weaken, variables)
  images, labels, _ = exemplars
  train = jax.jit(functools.partial(spec.model.apply, train=True))
  (features, *_), moved = train(variables, images)
  # Flax moves statistics a tenth of the way, so ten times that is all of it.
  before = variables["batch_stats"]
  stats = jax.tree.map(lambda a, b: a + 10 * (b - a), before, moved)
  params = variables["params"]
  seen = jnp.ones(len(labels), bool)
  head = bilevel.imprint(params["head"], features, labels, seen)
  variables = {"params": params | {"head": head}, "batch_stats": stats}
  save(
    path,
    spec.model,
    variables,
    exemplars=exemplars.images,
    labels=exemplars.labels,
    valid=valid.images,
    valid_labels=valid.labels,
    inner_lr=spec.inner_lr,
  )
  return None, {}


def save(path: str, model: Model, variables: Any, **arrays: Any) -> None:
  """Writes arrays, a model's variables by path, and what it is built of."""
  leaves, _ = jax.tree.flatten_with_path(variables)
  module = model.network.module
  about = {
    name: getattr(module, name) for name in ("blocks", "widths", "mean", "std")
  }
  np.savez(path, **{_name(k): v for k, v in leaves}, **about, **arrays)


def _weaken(path, x):
  branch = path[-2].key == "BatchNorm_1" and path[-1].key == "scale"
  return 0.2 * x if branch else x


def _read(path: str, problem: Problem, double: bool):
  arrays = np.load(path, allow_pickle=False)
  structure = jax.eval_shape(problem.draw)[0]  # initialises in float32 only
  jax.config.update("jax_enable_x64", double)
  dtype = jnp.float64 if double else jnp.float32
  variables = jax.tree_util.tree_map_with_path(
    lambda k, _: jnp.asarray(arrays[_name(k)], dtype),
    structure,
  )
  images = {k: jnp.asarray(arrays[k], dtype) for k in ("exemplars", "valid")}
  labels, valid_labels = map(
    jnp.asarray, (arrays["labels"], arrays["valid_labels"])
  )
  return (
    Exemplars(images["exemplars"], labels),
    variables,
    Exemplars(images["valid"], valid_labels),
  )


def _name(path):
  return jax.tree_util.keystr(path, simple=True, separator="/")


def meta_step(
  path: str,
  problem: dict,
  inner_steps: int,
  remat: str,
  devices: int = 1,
  double: bool = False,
):
  """Validation loss after the base level, and its gradient in the pixels.

  Several virtual devices share the exemplars and the validation images.
  """
  jax.config.update("jax_num_cpu_devices", devices)
  spec = Problem(**problem)
  step = _program(spec, inner_steps, remat)

  def program(exemplars, variables, valid):
    exemplars, valid = mesh.shard((exemplars, valid))
    return mesh.replicate(step(exemplars, variables, valid))

  with mesh.use(devices):
    args = _read(path, spec, double)
    return _compile(program, *args)


def head_step(problem: dict, inner_steps: int, cached: int):
  """The meta step that trains the head alone, on cached validation features."""
  spec = Problem(**problem)
  variables, exemplars, _ = spec.draw()
  config = BilevelConfig(
    scope="head",
    features_fn=spec.features,
    head_fn=spec.head,
    inner_steps=inner_steps,
  )
  dim = spec.model.network.feature_dim
  features = jax.random.normal(jax.random.key(1), (cached, dim))
  valid = Features(features, jnp.arange(cached) % spec.classes)
  program = functools.partial(bilevel.hypergradient, config=config)
  return _compile(program, exemplars, variables, valid)


def backbone_step(problem: dict):
  """One forward and backward pass of the exemplars through the backbone."""
  spec = Problem(**problem)
  variables, exemplars, _ = spec.draw()

  def program(images, variables):
    total = lambda images: jnp.sum(spec.features(variables, images) ** 2)
    return jax.value_and_grad(total)(images)

  return _compile(program, exemplars.images, variables)


def memory(problem: dict, lengths: tuple[int, ...]):
  """Bytes that the compiled meta step allots, per remat and inner steps."""
  spec = Problem(**problem)
  variables, exemplars, valid = jax.eval_shape(spec.draw)
  allotted = {}
  for remat in ("none", "step", "nested"):
    for steps in lengths:
      program = _program(spec, steps, remat)
      analysis = _memory_of(program, exemplars, variables, valid)
      allotted[remat, steps] = analysis.temp_size_in_bytes
  return None, allotted


def chunk_memory(
  image_size: int, classes: int, exemplars: int, valid: int, inner_steps: int
):
  """Bytes of ResNet-18's compiled meta step on some exemplars, all included."""
  network = networks.resnet18(image_shape=(image_size, image_size, 3))
  model = Model(network, CosineHead(), classes)
  config = BilevelConfig(scope="all", remat="step", inner_steps=inner_steps)
  program = functools.partial(
    bilevel.hypergradient,
    apply_fn=lambda v, x: model.apply(v, x)[0].logits,
    config=config,
  )
  shape = jax.ShapeDtypeStruct
  pair: Any = lambda n, dtype: (
    shape((n, *network.image_shape), dtype), shape((n,), jnp.int32),
  )  # fmt: skip
  began = time.perf_counter()
  memory = _memory_of(
    program,
    Exemplars(*pair(exemplars, jnp.float32)),
    jax.eval_shape(model.init, jax.random.key(0)),
    pair(valid, jnp.uint8),
  )
  used = (
    memory.temp_size_in_bytes
    + memory.argument_size_in_bytes
    + memory.output_size_in_bytes
  )
  seconds = time.perf_counter() - began
  return None, {"meta_step": used, "compile_seconds": seconds}


def _memory_of(program, *args) -> Any:
  # Buffers are assigned before machine code is made: leave that unoptimised.
  options: Any = {"xla_backend_optimization_level": 0}
  return jax.jit(program).lower(*args).compile(options).memory_analysis()


def _program(problem, inner_steps, remat):
  config = problem.config(inner_steps=inner_steps, remat=remat)
  return functools.partial(
    bilevel.hypergradient, apply_fn=problem.apply, config=config
  )


def _compile(program, *args):
  start = time.perf_counter()
  compiled = jax.jit(program).lower(*args).compile()
  facts = {"compile_seconds": time.perf_counter() - start}

  def step():
    value, grads = jax.block_until_ready(compiled(*args))
    return float(value), np.asarray(grads)

  return step, facts
