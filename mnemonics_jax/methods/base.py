"""What a base method is: a loss, a read-out, and hooks around a phase.

A method is a small frozen dataclass whose fields are its hyper-parameters. Equal
methods share compiled programs. The defaults below train with plain
cross-entropy; a method overrides what it does differently:

>>> import jax.numpy as jnp
>>> @dataclasses.dataclass(frozen=True)
... class SmallFeatures(Method):
...   name: ClassVar[str] = "small_features"
...   weight: float = 0.1
...
...   def loss(self, student, teacher, labels, classes):
...     ce = losses.cross_entropy(student.logits, labels, classes.seen)
...     size = jnp.mean(student.features**2)
...     return ce + self.weight * size, {"cross_entropy": ce, "size": size}

`phase.Config(network, SmallFeatures(), stream.shape)` runs it. To choose it on the
command line, give it a file beside this one and an entry in `registry.METHODS`.
"""

from collections.abc import Callable
import dataclasses
from typing import ClassVar, NamedTuple

from jaxtyping import Array, Bool, Float, Int
import numpy as np
import optax

from mnemonics_jax import losses
from mnemonics_jax.nn.heads import Head, LinearHead
from mnemonics_jax.nn.model import Outputs
from mnemonics_jax.types import Variables


class Classes(NamedTuple):
  """Which classes a phase knows, as masks over all classes of the run.

  Attributes:
    old: learned in earlier phases.
    new: arriving in this one.
    phases: the classes that arrive in each phase of the run; None where no method
      needs them.
  """

  old: Bool[Array, " classes"]
  new: Bool[Array, " classes"]
  phases: Bool[Array, "phases classes"] | None = None

  @property
  def seen(self) -> Bool[Array, " classes"]:
    """Old and new classes."""
    return self.old | self.new

  @property
  def old_phases(self) -> Bool[Array, "phases classes"]:
    """The old classes of each phase; without `phases`, all as one phase."""
    return self.old[None] if self.phases is None else self.phases & self.old


@dataclasses.dataclass(frozen=True)
class Method:
  """Plain replay: cross-entropy over all seen classes.

  Attributes:
    name: its name on the command line.
    readout: the read-out whose numbers are the method's results.
    joint: whether it may see the raw data of old classes (upper bound only).
    holdout: share of the exemplars that training never sees; `calibrate` gets it.
    last_relu: whether the network of the authors' code ends with a ReLU.
    head: the classifier it is defined with.
    distill: whether the old model's knowledge enters the loss.
  """

  name: ClassVar[str]
  readout: ClassVar[str] = "head"
  joint: ClassVar[bool] = False
  holdout: ClassVar[float] = 0.0
  last_relu: ClassVar[bool] = True
  head: Head = LinearHead()
  distill: bool = True

  def reference(self) -> "Method":
    """The method as the authors' code has it, where that differs from ours."""
    return self

  def begin_run(self, variables: Variables) -> Variables:
    """Adds the arrays the method keeps beside the model."""
    return variables

  def begin_phase(
    self,
    variables: Variables,
    means: Callable[[], Float[np.ndarray, "classes d"]],
    classes: Classes,
  ) -> Variables:
    """Prepares Θ for new classes; `means` gives their mean normalised features."""
    del means, classes
    return variables

  def trainable_rows(self, classes: Classes) -> Bool[Array, " classes"]:
    """Head rows that may move while a phase is trained."""
    return classes.seen

  def logits(
    self, variables: Variables, outputs: Outputs
  ) -> Float[Array, "n classes"]:
    """Logits the method predicts and trains with."""
    del variables
    return outputs.logits

  def loss(
    self,
    student: Outputs,
    teacher: Outputs | None,
    labels: Int[Array, " n"],
    classes: Classes,
  ) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The loss of a batch and its parts; `teacher` is None in phase 0."""
    del teacher
    loss = losses.cross_entropy(student.logits, labels, classes.seen)
    return loss, {}

  def gradients(
    self, batch_size: int, key: Array | int
  ) -> optax.GradientTransformation:
    """Changes the mean gradient of a batch before SGD uses it."""
    del batch_size, key
    return optax.identity()

  def begin_finetune(
    self, variables: Variables, classes: Classes
  ) -> tuple[Variables | None, Classes]:
    """The teacher of the balanced fine-tune of Θ, and the classes of its loss."""
    del variables
    return None, classes

  def calibrate(
    self,
    variables: Variables,
    logits: Float[np.ndarray, "n classes"],
    labels: Int[np.ndarray, " n"],
    classes: Classes,
  ) -> Variables:
    """Fits a correction of the trained model on held-out exemplars."""
    del logits, labels, classes
    return variables


@dataclasses.dataclass(frozen=True)
class Joint(Method):
  """The upper bound: cross-entropy on the raw data of all seen classes."""

  name: ClassVar[str] = "joint"
  joint: ClassVar[bool] = True
  last_relu: ClassVar[bool] = False
