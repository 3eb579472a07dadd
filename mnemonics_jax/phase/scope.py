"""Which of a model's variables SGD moves, and which it leaves."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from mnemonics_jax.types import PyTree, Variables


def trainable(variables: Variables, scope: str) -> PyTree:
  """The part of the variables that SGD moves.

  `all`: every parameter. `transfer`: T, normalisation and head over frozen
  kernels. `head`: the head alone.

  >>> conv = {"Conv_0": {"kernel": 1.0}, "BatchNorm_0": {"scale": 2.0}}
  >>> params = {"backbone": conv, "head": {"weight": 3.0}}
  >>> trainable({"params": params, "batch_stats": {}}, "head")
  {'params': {'head': {'weight': 3.0}}}
  """
  params = variables["params"]
  if scope == "head":
    return {"params": {"head": params["head"]}}
  if scope == "all":
    return {"params": params}
  backbone = _without_kernels(params["backbone"])
  return {
    "params": params | {"backbone": backbone},
    "transfer": variables["transfer"],
  }


def _without_kernels(node):
  return {
    name: _without_kernels(child) if isinstance(child, dict) else child
    for name, child in node.items()
    if name != "kernel"
  }


def merge(variables: PyTree, part: PyTree) -> PyTree:
  """Variables with the leaves of `part` in place of their own.

  >>> merge({"params": {"a": 1, "b": 2}, "batch_stats": 3}, {"params": {"b": 5}})
  {'params': {'a': 1, 'b': 5}, 'batch_stats': 3}
  """
  if not isinstance(part, dict):
    return part
  return variables | {
    name: merge(variables[name], child) for name, child in part.items()
  }


def deviation(part: PyTree) -> PyTree:
  """What weight decay shrinks: parameters, and transfer minus its identity.

  >>> scales = {"scale": jnp.array([1.0, 3.0]), "shift": jnp.array([0.0, 2.0])}
  >>> pull = deviation({"params": {}, "transfer": {"Conv_0": scales}})
  >>> pull["transfer"]["Conv_0"]["scale"].tolist()
  [0.0, 2.0]
  """
  if "transfer" not in part:
    return part
  identity = lambda path, x: x - 1 if path[-1].key == "scale" else x
  transfer = jax.tree_util.tree_map_with_path(identity, part["transfer"])
  return part | {"transfer": transfer}


def hold_rows(updates: PyTree, rows: Array) -> PyTree:
  """Updates that leave every head row outside `rows` exactly where it is.

  >>> updates = {"params": {"head": {"bias": jnp.array([5.0, 6.0])}}}
  >>> held = hold_rows(updates, jnp.array([True, False]))
  >>> held["params"]["head"]["bias"].tolist()
  [5.0, 0.0]
  """
  head = updates["params"]["head"]
  held = {
    name: jnp.where(rows.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0)
    for name, leaf in head.items()
    if leaf.ndim
  }
  return merge(updates, {"params": {"head": held}})
