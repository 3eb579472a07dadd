"""Details of the code that made the published numbers, where ours differ.

The paper's presets follow them; the others keep what a short schedule needs:

             reference code                        otherwise
  LUCIR      margin loss averaged over K classes   summed over them (its Eq. 8)
             σ of the cosine head starts at 1      at 10
  LwF, iCaRL, BiC, E2E
             features pass a last ReLU             features are signed
"""

import dataclasses

from mnemonics_jax.methods.base import Method
from mnemonics_jax.methods.joint import Joint
from mnemonics_jax.methods.lucir import LUCIR
from mnemonics_jax.nn.heads import CosineHead

_SIGNED = (LUCIR, Joint)


def method(ours: Method) -> Method:
  """The method as the reference code has it.

  >>> method(LUCIR()).reduction
  'mean'
  """
  if not isinstance(ours, LUCIR):
    return ours
  return dataclasses.replace(ours, reduction="mean", head=CosineHead(sigma=1.0))


def last_relu(ours: Method) -> bool:
  """Whether the method's reference network ends with a ReLU.

  >>> last_relu(LUCIR())  # Its features are signed.
  False
  """
  return not isinstance(ours, _SIGNED)
