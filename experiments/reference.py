"""Details of the code that made the published numbers, where ours differ.

They are what `--reference_code` switches, and part of --preset=paper; the other
presets keep what a short schedule needs:

             reference code                        otherwise
  LUCIR      margin loss averaged over K classes   summed over them (its Eq. 8)
             σ of the cosine head starts at 1      at 10
  LwF, iCaRL, BiC, E2E
             features pass a last ReLU             features are signed
"""

import dataclasses

from mnemonics_jax import methods
from mnemonics_jax.methods import Method
from mnemonics_jax.nn.heads import CosineHead

_SIGNED = (methods.LUCIR, methods.Joint)


def method(ours: Method) -> Method:
  """The method as the reference code has it."""
  if not isinstance(ours, methods.LUCIR):
    return ours
  return dataclasses.replace(ours, reduction="mean", head=CosineHead(sigma=1.0))


def last_relu(ours: Method) -> bool:
  """Whether the method's reference network ends with a ReLU."""
  return not isinstance(ours, _SIGNED)
