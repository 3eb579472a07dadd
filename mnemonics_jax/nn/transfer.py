"""Weight transfer: learn a scale and a shift over frozen weights (T in the paper).

X_q = (W_q ⊙ T^W_q) X_{q−1} + (b_q + T^b_q), Eq. 5 of Liu et al. 2020. T is a
`transfer` collection beside Θ; after the phase it is folded into Θ.

`in_out` has one scale per kernel slice, as in the authors' code; this package calls
it the paper's. `out` has one per output channel, as the formula is printed. In front
of a batch normalisation in training, `out` has no effect: it is normalised away.
"""

import chex
import jax.numpy as jnp

from mnemonics_jax.types import PyTree, Variables


def init(backbone: PyTree, kind: str) -> PyTree:
  """The identity T for every convolution kernel in `backbone`.

  Args:
    backbone: parameters of a network whose kernels are all of convolutions.
    kind: `in_out` or `out`.
  """

  def identity(node):
    if "kernel" in node:
      chex.assert_rank(node["kernel"], 4)
      _, _, inputs, outputs = node["kernel"].shape
      rows = {"in_out": inputs, "out": 1}[kind]
      return {
        "scale": jnp.ones((1, 1, rows, outputs)),
        "shift": jnp.zeros(outputs),
      }
    children = {
      name: identity(child)
      for name, child in node.items()
      if isinstance(child, dict)
    }
    return {name: child for name, child in children.items() if child}

  return identity(backbone)


def apply(variables: Variables, transfer: PyTree) -> Variables:
  """Variables whose convolutions are scaled and shifted by `transfer`."""
  return variables | {"transfer": transfer}


def fold(variables: Variables) -> Variables:
  """Θ ← T ⊙ Θ: the same function without T.

  Our convolutions have no bias; a shift in front of a batch normalisation is
  the same as lowering the running mean it subtracts.
  """
  if "transfer" not in variables:
    return variables

  def fold_node(params, stats, transfer):
    params, stats = dict(params), dict(stats)
    for name, t in transfer.items():
      if "scale" in t:
        params[name] = {"kernel": params[name]["kernel"] * t["scale"]}
        norm = name.replace("Conv", "BatchNorm")
        mean = stats[norm]["mean"] - t["shift"]
        stats[norm] = stats[norm] | {"mean": mean}
      else:
        params[name], stats[name] = fold_node(params[name], stats[name], t)
    return params, stats

  backbone, stats = fold_node(
    variables["params"]["backbone"],
    variables["batch_stats"],
    variables["transfer"],
  )
  folded = {k: v for k, v in variables.items() if k != "transfer"}
  return folded | {
    "params": variables["params"] | {"backbone": backbone},
    "batch_stats": stats,
  }
