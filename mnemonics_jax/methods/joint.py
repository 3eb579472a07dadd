"""The upper bound: joint training on all data of all seen classes."""

import dataclasses
from typing import ClassVar

from mnemonics_jax.methods.base import Method


@dataclasses.dataclass(frozen=True)
class Joint(Method):
  """Cross-entropy with old raw data at hand; not an incremental learner.

  >>> Joint().joint, Method().joint
  (True, False)
  """

  name: ClassVar[str] = "joint"
  joint: ClassVar[bool] = True
