"""Read-outs: ways to score the classes for images, once a model is trained.

>>> import numpy as np
>>> from mnemonics_jax.readouts import READOUTS
>>> exemplars = np.array([[2.0, 0.0], [0.0, 5.0]]), np.array([0, 1])
>>> images, logits = np.array([[0.0, 9.0]]), np.array([[3.0, 1.0, 8.0]])
>>> known = images, logits, lambda: exemplars, 2
>>> [READOUTS[name]().scores(*known).tolist() for name in ("head", "nme")]
[[[3.0, 1.0]], [[0.0, 1.0]]]
"""

from collections.abc import Mapping

from mnemonics_jax import registry
from mnemonics_jax.readouts.base import Head, Readout
from mnemonics_jax.readouts.nme import NearestMean, class_means

READOUTS: Mapping[str, type[Readout]] = registry.Objects(registry.READOUTS)

__all__ = ["READOUTS", "Head", "NearestMean", "Readout", "class_means"]
