"""What a phase does: every choice of the method, and the sizes that follow."""

import dataclasses
import functools

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import registry
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.data.stream import StreamShape
from mnemonics_jax.errors import UserError, check_count
from mnemonics_jax.memory import Codec, MemoryPolicy, PerClass, Raw, WebP
from mnemonics_jax.methods import Method
from mnemonics_jax.nn.augment import Augmentation, CropFlip, NoAugmentation
from mnemonics_jax.nn.model import Model
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.phase import rehearsal
from mnemonics_jax.phase.level import Level
from mnemonics_jax.phase.schedule import Schedule
from mnemonics_jax.phase.sizes import OpenShape, Sizes, derive


@dataclasses.dataclass(frozen=True)
class Config:
  """Everything that decides what a phase does; hashable.

  >>> from mnemonics_jax import data, methods, networks
  >>> stream = data.stream(data.load("digits"), phases=5)
  >>> network = networks.resnet8(image_shape=stream.image_shape)
  >>> config = Config(network, methods.LUCIR(), stream.shape, finetune="head")
  >>> config.model.classes, config.sizes.class_exemplars
  (10, 20)
  >>> dataclasses.replace(config, finetune="tail")
  Traceback (most recent call last):
  mnemonics_jax.errors.UserError: `finetune=tail` is not known; choose one of none, head, all.

  Attributes:
    network: images to features; the method brings the head.
    method: the base method.
    shape: of the stream of data the phases learn from (`stream.shape`).
    memory: how much may be kept of each class; if that is bytes, what
      `memory.fit` makes of it.
    codec: how exemplars are kept: as they are, or coded.
    code_new: whether the model sees new images as they would be kept, too, once
      there are old ones (`phase/as_kept.py`).
    rehearsal: how often old exemplars are drawn, see `rehearsal.quotas`: `once`
      (the paper), `balanced`, or a number of times.
    exemplars: how new exemplars are made: `random` and `herding` choose among
      the images, `selected` learns which to choose, `mnemonics` learns them.
    init_exemplars: start images of `mnemonics`: `random` or `herding`.
    validate_on: what validates new exemplars while they are learned: `new` is
      D_i alone (Eq. 7 and 9 of Liu et al. 2020), `all` adds the old exemplars.
    adjust: whether old exemplars are adjusted in every phase; each time they
      may move by the trust region of `bilevel` again.
    adjust_parts: into how many parts they are dealt for it; each part is
      validated by the others.
    bilevel: how exemplars are learned and adjusted.
    drift: copies of the model that new exemplars are learned for beside it, each
      after some epochs of an imitated next phase.
    imitate: whether new exemplars are learned through the training of an imitated
      next phase, with the method's own loss, on the whole network.
    augment_exemplars: whether exemplars are augmented while they are learned.
    exemplar_chunk: classes whose exemplars are learned at a time, None for all.
    transfer: `none`, or scale/shift weight transfer `in_out` or `out`.
    finetune: what the balanced fine-tune trains: `none`, `head` or `all`.
    base: schedule of phase 0.
    train: schedule of the later phases.
    balance: schedule of the fine-tune.
    augment: augmentation of training images.
    stream: whether training images stay on the host or on a disk and stream to
      the device while it trains: `always`, `never`, or `auto`, if they do not
      fit. It changes no number.
  """

  network: Network
  method: Method
  shape: StreamShape | OpenShape
  memory: MemoryPolicy = PerClass(20)
  codec: Codec = Raw()
  code_new: bool = False
  rehearsal: str = "once"
  exemplars: str = "herding"
  init_exemplars: str = "herding"
  validate_on: str = "all"
  adjust: bool = False
  adjust_parts: int = 2
  bilevel: BilevelConfig = BilevelConfig()
  drift: int = 0
  imitate: bool = False
  augment_exemplars: bool = True
  exemplar_chunk: int | None = None
  transfer: str = "none"
  finetune: str = "none"
  base: Schedule = Schedule()
  train: Schedule = Schedule()
  balance: Schedule = Schedule(50, 0.01, ())
  augment: Augmentation = CropFlip()
  stream: str = dataclasses.field(default="auto", metadata={"identity": False})

  def __post_init__(self):
    for name, choices in CHOICES.items():
      value = getattr(self, name)
      if value not in choices:
        raise UserError(
          name,
          f"`{name}={value}` is not known",
          f"choose one of {', '.join(choices)}",
        )
    if self.method.joint != self.shape.joint:
      raise UserError(
        "method",
        f"`method={self.method.name}` and the stream do not fit: only the joint"
        " upper bound sees the data of earlier phases",
        f"make the stream with joint={self.method.joint}",
      )
    if self.network.image_shape != self.shape.image_shape:
      raise UserError(
        "network",
        f"the network takes images {self.network.image_shape}, the stream has"
        f" {self.shape.image_shape}",
        "give the network the stream's image_shape",
      )
    self.codec.check(self.shape.image_shape)
    rehearsal.check(self.rehearsal)
    check_count("drift", self.drift)
    if self.drift and self.imitate:
      raise UserError(
        "drift",
        f"`drift={self.drift}` cannot be used with `imitate`",
        "leave out one of them",
      )
    check_count("adjust_parts", self.adjust_parts, least=2)
    if self.exemplar_chunk is not None:
      check_count("exemplar_chunk", self.exemplar_chunk, least=1)
    if (self.learned or self.adjust) and isinstance(self.codec, WebP):
      raise UserError(
        "codec",
        f"`codec={self.codec}` has no gradient, and exemplars are learned through"
        " it",
        "use jpeg or raw, or exemplars that are chosen and not adjusted",
      )
    memory_lib.check(
      self.memory,
      self.shape.classes_per_phase,
      self.shape.smallest_class,
      len(self.codec.shared(self.shape.image_shape)),
    )
    if self.method.holdout:
      self._check_memory(
        2, f"`method={self.method.name}` trains on one, calibrates with another"
      )
    if self.adjust and not self.method.joint:
      self._check_memory(
        self.adjust_parts, f"`adjust` deals them to {self.adjust_parts} parts"
      )

  def _check_memory(self, least, reason):
    """Refuses a memory that ends with fewer exemplars of a class."""
    classes = sum(self.shape.classes_per_phase)
    shared = len(self.codec.shared(self.shape.image_shape))
    left = memory_lib.certain(self.memory, classes, shared)
    if left < least:
      kind = str(self.memory).split(":")[0]
      enough = least * (classes if kind == "total" else 1)
      in_bytes = self.memory.bytes_allowance(classes) is not None
      raise UserError(
        "memory",
        f"`memory={self.memory}` ends with {left} of each class, and {reason}",
        "use more bytes or another `codec`"
        if in_bytes
        else f"use {kind}:{enough} or more",
      )

  @functools.cached_property
  def model(self) -> Model:
    """Network and head, for all classes of the stream."""
    return Model(self.network, self.method.head, self.shape.classes)

  @functools.cached_property
  def sizes(self) -> Sizes:
    """Of all arrays, from the data and the memory."""
    return derive(self.shape, self.memory, imitates=self.drift > 0)

  @functools.cached_property
  def level(self) -> Level:
    """Model and recipe of the exemplar level."""
    augment = self.augment if self.augment_exemplars else NoAugmentation()
    return Level.of(self.bilevel, self.model, self.method, augment, self.codec)

  @property
  def imitating(self) -> Level:
    """The exemplar level whose base level is the training of the next phase."""
    return self.level.imitating(
      self.model, self.method, self.train.learning_rate
    )

  @property
  def learned(self) -> bool:
    """Whether new exemplars are learned."""
    return self.exemplars == "mnemonics"

  @property
  def chosen(self) -> str:
    """How exemplars are chosen among the images, before any learning."""
    if self.exemplars == "selected":
      return "herding"  # Its candidates.
    return self.init_exemplars if self.learned else self.exemplars

  @property
  def learned_on_features(self) -> bool:
    """Whether new exemplars are learned from features of the new images."""
    on_features = self.level.config.on_features and not self.imitate
    # Each of several models has features of its own.
    return self.learned and on_features and not self.drift


CHOICES = {
  "exemplars": tuple(registry.EXEMPLARS),
  "init_exemplars": tuple(registry.INIT_EXEMPLARS),
  "validate_on": tuple(registry.VALIDATIONS),
  "transfer": tuple(registry.TRANSFERS),
  "finetune": tuple(registry.FINETUNES),
  "stream": tuple(registry.STREAMS),
}
