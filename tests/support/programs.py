"""The programs that a run compiles, each with arguments to trace it for."""

from collections.abc import Iterator
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mnemonics_jax import bilevel, methods, phase
from mnemonics_jax.bilevel import meta_level
from mnemonics_jax.exemplars.level import exemplar_level
from mnemonics_jax.nn import transfer
from mnemonics_jax.phase import Phase, evaluate, sgd
from mnemonics_jax.phase.feed import make_pool
from support import tiny


class Program(NamedTuple):
  """A compiled function of a run.

  Attributes:
    name: what it does.
    function: jitted.
    arguments: by position.
    options: by name.
  """

  name: str
  function: Any
  arguments: tuple
  options: dict[str, Any]


def _phase_1(method: str, dtype: str | None = None) -> Phase:
  config, stream = tiny.setup(methods.METHODS[method](), split=(2, 2))
  if dtype is not None:
    module = dataclasses.replace(config.network.module, dtype=dtype)
    network = dataclasses.replace(config.network, module=module)
    config = dataclasses.replace(config, network=network)
  state = phase.begin_run(0, config)._replace(phase=1, classes_seen=2)
  return Phase(state, stream[1], config)


def training(
  method: str = "lucir", kind: str = "none", dtype: str | None = None
) -> Program:
  """A training step of a later phase, with a teacher.

  Args:
    method: the base method.
    kind: of weight transfer.
    dtype: of activations.
  """
  now = _phase_1(method, dtype)
  config, variables, scope = now.config, now.state.variables, "all"
  teacher = variables if now.incremental else None
  if kind != "none":
    identity = transfer.init(variables["params"]["backbone"], kind)
    variables, scope = transfer.apply(variables, identity), "transfer"
  task = sgd.Task(
    now.classes, now.classes.seen, teacher, model=config.model,
    method=config.method, schedule=config.train, scope=scope,
    augment=config.augment,
  )  # fmt: skip
  pool = make_pool(now.data.images, now.data.labels, config.sizes.pool)
  key = jax.random.key(0)
  return Program(
    " ".join(["train", method, kind, dtype or "float32"]),
    sgd.epoch_steps,
    (
      sgd.init_training(task, variables),
      sgd.zero_metrics(variables, task),
      next(pool.blocks(key, config.train))[0],
      key,
    ),
    dict(task=task, start=jnp.int32(0), stop=jnp.int32(1)),
  )


def meta(scope: str) -> Program:
  """A meta step that trains so much in its base level."""
  now = _phase_1("lucir")
  recipe = dataclasses.replace(tiny.RECIPE, scope=scope)
  config = dataclasses.replace(now.config, bilevel=recipe)
  level, rows = exemplar_level(config), 8
  images = bilevel.from_uint8(jnp.asarray(now.data.images[:rows]))
  labels = jnp.asarray(now.data.labels[:rows])
  exemplars = bilevel.Exemplars(images, labels, jnp.ones(rows, bool))
  problem = bilevel.prepare(
    exemplars, level.start(now.state.variables), exemplars,
    active=now.classes.seen, apply_fn=level.apply_fn, config=level.config,
  )  # fmt: skip
  state = bilevel.init(jax.random.key(0), exemplars, level.config)
  return Program(
    f"meta {scope}", meta_level._steps, (problem, state, jnp.int32(1)), {}
  )


def evaluation() -> Program:
  now = _phase_1("bic")
  return Program(
    "evaluate",
    evaluate._forward,
    (now.state.variables, jnp.asarray(now.data.images[:8])),
    dict(model=now.config.model, method=now.config.method),
  )


def export(program: Program, platforms: tuple[str, ...]) -> Any:
  """The program as it would be compiled for other platforms than this one."""
  static = {"model", "method"} & program.options.keys()
  fixed = {name: program.options[name] for name in static}
  rest = {k: v for k, v in program.options.items() if k not in static}
  function = jax.jit(functools.partial(program.function, **fixed))
  return jax.export.export(function, platforms=platforms)(
    *program.arguments, **rest
  )


def some() -> Iterator[Program]:
  """One of each kind, for tests that are slow for each."""
  yield training()
  yield meta("head")
  yield meta("all")
  yield evaluation()
