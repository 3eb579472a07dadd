"""One phase before it runs: what all of its stages look at."""

import dataclasses
import functools

import jax.numpy as jnp
from jaxtyping import Bool, Int
import numpy as np

from mnemonics_jax.data.images import Images
from mnemonics_jax.data.stream import PhaseData
from mnemonics_jax.methods import Classes
from mnemonics_jax.phase import holdout
from mnemonics_jax.phase.as_kept import as_kept
from mnemonics_jax.phase.config import Config
from mnemonics_jax.phase.keys import Keys
from mnemonics_jax.phase.sizes import OpenShape
from mnemonics_jax.types import PhaseState


@dataclasses.dataclass(frozen=True)
class Phase:
  """Where a phase starts, what it may look at, and what it does.

  >>> from mnemonics_jax import data, methods, networks, phase
  >>> stream = data.stream(data.load("digits"), phases=5)
  >>> network = networks.resnet8(width=4, image_shape=stream.image_shape)
  >>> config = phase.Config(network, methods.LwF(), stream.shape)
  >>> now = Phase(phase.begin_run(0, config), stream[0], config)
  >>> now.classes_old, now.classes_seen, now.incremental
  (0, 5, False)

  Attributes:
    state: what the phases before have left.
    data: of the new classes.
    config: what is done with them.
  """

  state: PhaseState
  data: PhaseData
  config: Config

  @property
  def classes_old(self) -> int:
    """How many classes earlier phases have learned."""
    return self.state.classes_seen

  @property
  def classes_seen(self) -> int:
    """How many classes are known once this phase has ended."""
    return self.state.classes_seen + self.data.new_classes

  @property
  def incremental(self) -> bool:
    """Whether there is something to forget."""
    return self.classes_old > 0 and not self.config.method.joint

  @property
  def adjusts(self) -> bool:
    """Whether there are old exemplars to adjust."""
    return self.config.adjust and self.incremental

  @property
  def finetunes(self) -> bool:
    """Whether the model is tuned on the memory; joint training needs none."""
    return self.config.finetune != "none" and not self.config.method.joint

  @property
  def allowance(self) -> int:
    """Exemplars that every class may keep once this phase has ended."""
    return self.config.memory.allowance(self.classes_seen)

  @property
  def bytes_allowance(self) -> int | None:
    """Bytes that the codes of a class may take then; None for any number."""
    shared = self.config.codec.shared(self.config.shape.image_shape)
    return self.config.memory.bytes_allowance(self.classes_seen, len(shared))

  def most(self, counts: Int[np.ndarray, " classes"]) -> int:
    """Images that a class with so many may keep, if their bytes fit."""
    if self.bytes_allowance is None or not isinstance(
      self.config.shape, OpenShape
    ):
      return self.allowance
    # A learner measures on new images how many fit, and old codes may be smaller.
    return max(self.allowance, int(counts.max()))

  @functools.cached_property
  def new_images(self) -> Images:
    """Images of the new classes, as the model is trained on them."""
    if self.config.code_new and self.incremental:
      return as_kept(self.config.codec, self.data.images)
    return self.data.images

  @functools.cached_property
  def held_out(self) -> Bool[np.ndarray, " n"]:
    """Which of the new images are never trained on, see `holdout`."""
    return holdout.of_new_images(
      self.keys.numpy("holdout"),
      self.data.labels,
      self.config.method.holdout,
      self.allowance,
    )

  @functools.cached_property
  def classes(self) -> Classes:
    """Masks of old and new classes, and of the classes of each phase."""
    index = np.arange(self.config.model.classes)
    old, seen = index < self.classes_old, index < self.classes_seen
    ends = np.cumsum(self.config.shape.classes_per_phase)
    arrives = np.searchsorted(ends, index, side="right")
    phases = np.arange(self.config.shape.phases)[:, None] == arrives
    return Classes(*map(jnp.asarray, (old, seen & ~old, phases)))

  @functools.cached_property
  def keys(self) -> Keys:
    """Randomness for each purpose within this phase."""
    return Keys(self.state.key, self.state.phase)
