"""The meta step of `bilevel` on our ResNets, and what it is compared with."""

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from mnemonics_jax import bilevel, networks
from mnemonics_jax.bilevel import BilevelConfig, Exemplars, Features
from mnemonics_jax.heads import CosineHead
from mnemonics_jax.model import Model


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
    return self.model.features(variables, images)[0]

  def head(self, params, features):
    return self.model.head.scores(params, features).logits

  def config(self, **changes) -> BilevelConfig:
    return BilevelConfig(scope="all", inner_lr=self.inner_lr, **changes)

  def draw(self):
    """Variables, exemplars and a validation batch."""
    keys = jax.random.split(jax.random.key(0), 4)
    variables = self.model.init(keys[0])
    shape = self.model.network.image_shape
    images = jax.random.uniform(keys[1], (self.exemplars, *shape))
    labels = jnp.arange(self.exemplars) % self.classes
    valid = jax.random.uniform(keys[2], (self.valid, *shape))
    valid_labels = jax.random.randint(keys[3], (self.valid,), 0, self.classes)
    return variables, Exemplars(images, labels), Exemplars(valid, valid_labels)


def write(path: str, problem: Problem):
  """Writes the problem's arrays for a contestant that does not know JAX."""
  variables, exemplars, valid = problem.draw()
  # Statistics of the images make a random network behave like a trained one.
  # Flax moves them a tenth of the way, so ten times that is all of it.
  train = jax.jit(functools.partial(problem.model.features, train=True))
  moved = train(variables, exemplars.images)[1]
  before = variables["batch_stats"]
  stats = jax.tree.map(lambda a, b: a + 10 * (b - a), before, moved)
  variables = variables | {"batch_stats": stats}
  leaves, _ = jax.tree.flatten_with_path(variables)
  module = problem.model.network.module
  np.savez(
    path,
    **{
      jax.tree_util.keystr(k, simple=True, separator="/"): v for k, v in leaves
    },
    exemplars=exemplars.images,
    labels=exemplars.labels,
    valid=valid.images,
    valid_labels=valid.labels,
    inner_lr=problem.inner_lr,
    blocks=module.blocks,
    widths=module.widths,
    mean=np.float32(module.mean),
    std=np.float32(module.std),
  )
  return None, {"jax": jax.__version__}


def _read(path: str, problem: Problem):
  arrays = np.load(path)
  shapes = jax.eval_shape(problem.draw)[0]
  variables = jax.tree_util.tree_map_with_path(
    lambda k, _: jnp.asarray(
      arrays[jax.tree_util.keystr(k, simple=True, separator="/")]
    ),
    shapes,
  )
  exemplars = Exemplars(
    *map(jnp.asarray, (arrays["exemplars"], arrays["labels"]))
  )
  valid = Exemplars(
    *map(jnp.asarray, (arrays["valid"], arrays["valid_labels"]))
  )
  return variables, exemplars, valid


def meta_step(path: str, problem: Problem, inner_steps: int, remat: str):
  """Validation loss after the base level, and its gradient in the pixels."""
  variables, exemplars, valid = _read(path, problem)
  program = _program(problem, inner_steps, remat)
  return _compile(program, exemplars, variables, valid)


def head_step(problem: Problem, inner_steps: int, cached: int):
  """The meta step that trains the head alone, on cached validation features."""
  variables, exemplars, _ = problem.draw()
  config = BilevelConfig(
    scope="head",
    features_fn=problem.features,
    head_fn=problem.head,
    inner_steps=inner_steps,
  )
  dim = problem.model.network.feature_dim
  features = jax.random.normal(jax.random.key(1), (cached, dim))
  valid = Features(features, jnp.arange(cached) % problem.classes)
  program = functools.partial(bilevel.hypergradient, config=config)
  return _compile(program, exemplars, variables, valid)


def backbone_step(problem: Problem):
  """One forward and backward pass of the exemplars through the backbone."""
  variables, exemplars, _ = problem.draw()

  def program(images, variables):
    total = lambda images: jnp.sum(problem.features(variables, images) ** 2)
    return jax.value_and_grad(total)(images)

  return _compile(program, exemplars.images, variables)


def memory(problem: Problem, lengths: tuple[int, ...]):
  """Bytes that the compiled meta step allots, per remat and inner steps."""
  arrays = jax.eval_shape(problem.draw)
  variables, exemplars, valid = arrays
  allotted = {}
  for remat in ("none", "step", "nested"):
    for steps in lengths:
      program = jax.jit(_program(problem, steps, remat))
      # Buffers are assigned before machine code is made: leave that unoptimised.
      analysis = (
        program.lower(exemplars, variables, valid)
        .compile({"xla_backend_optimization_level": 0})
        .memory_analysis()
      )
      allotted[remat, steps] = analysis.temp_size_in_bytes
  return None, allotted


def _program(problem, inner_steps, remat):
  config = problem.config(inner_steps=inner_steps, remat=remat)
  return functools.partial(
    bilevel.hypergradient, apply_fn=problem.apply, config=config
  )


def _compile(program, *args):
  start = time.perf_counter()
  compiled = jax.jit(program).lower(*args).compile()
  facts = {
    "jax": jax.__version__,
    "compile_seconds": time.perf_counter() - start,
    "allotted_bytes": compiled.memory_analysis().temp_size_in_bytes,
  }

  def step():
    value, grads = jax.block_until_ready(compiled(*args))
    return float(value), np.asarray(grads)

  return step, facts
