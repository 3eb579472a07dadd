"""Which of a model's variables SGD moves."""

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
