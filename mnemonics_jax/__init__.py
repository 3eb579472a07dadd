"""Class-incremental learning in JAX, with exemplars that are learned.

Teach a classifier new classes, one call for each group of them:

  from mnemonics_jax import Learner, data

  digits = data.load("digits")
  images, labels = digits.train_images, digits.train_labels
  learner = Learner("resnet8", memory="per_class:5", augment="crop")
  known = learner.learn(None, images[labels < 5], labels[labels < 5])
  known = learner.learn(known, images[labels == 5], labels[labels == 5])
  learner.predict(known, digits.test_images[:4])

Run an experiment, with checkpoints, measurements and a report:

  from mnemonics_jax import data, methods, networks, phase, runs

  stream = data.stream(data.load("digits"), phases=5)
  network = networks.resnet8(
    image_shape=stream.image_shape, mean=stream.mean, std=stream.std
  )
  config = phase.Config(network, methods.LUCIR(), stream.shape)
  results = runs.run(config, stream, "my_run")

To learn exemplars for a JAX model of your own, see `help(mnemonics_jax.bilevel)`.

The words used throughout, and the paper's symbols for them:

  phase         i: one arrival of new classes; phase 0 brings the base classes
  variables     Θ: the model's arrays (`params`, `batch_stats`, ...)
  transfer      T: scales and shifts over frozen weights
  exemplars     E: the few images kept of each class, here also parameters
  memory        E_{0:i}: the exemplars of all classes seen, uint8, on a budget
  base level    training a temporary model Θ' on exemplars (learning rate α₂)
  meta level    moving exemplars by the gradient through that training (β)
  head, nme     the two read-outs: classifier head, nearest mean of exemplars
  old, new      classes of earlier phases, classes of this one; both are `seen`
"""

from typing import TYPE_CHECKING

from mnemonics_jax import package
from mnemonics_jax.package import __version__

if TYPE_CHECKING:
  from mnemonics_jax import (
    bilevel,
    data,
    losses,
    memory,
    methods,
    phase,
    protocol,
    report,
    runs,
  )
  from mnemonics_jax.errors import UserError
  from mnemonics_jax.learner import Known, Learner
  from mnemonics_jax.memory import PerClass, Total
  from mnemonics_jax.nn import augment, networks
  from mnemonics_jax.types import Batch, Exemplars, PhaseResult, PhaseState

__all__ = [
  "Batch",
  "Exemplars",
  "Known",
  "Learner",
  "PerClass",
  "PhaseResult",
  "PhaseState",
  "Total",
  "UserError",
  "__version__",
  "augment",
  "bilevel",
  "data",
  "losses",
  "memory",
  "methods",
  "networks",
  "phase",
  "protocol",
  "report",
  "runs",
]

# The module of each name that is not a module of this package itself.
_HOMES = {
  "Batch": "types",
  "Exemplars": "types",
  "Known": "learner",
  "Learner": "learner",
  "PerClass": "memory",
  "PhaseResult": "types",
  "PhaseState": "types",
  "Total": "memory",
  "UserError": "errors",
  "__version__": "package",
  "augment": "nn.augment",
  "networks": "nn.networks",
}
__getattr__, __dir__ = package.attach(
  __name__, {name: _HOMES.get(name, name) for name in __all__}
)
