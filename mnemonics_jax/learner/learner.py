"""The learner: settings, and calls that learn classes and name images."""

from collections.abc import Iterable, Iterator
import contextlib
import dataclasses
import functools
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import phase, registry
from mnemonics_jax import settings as settings_lib
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.errors import UserError, check_count
from mnemonics_jax.learner import inputs
from mnemonics_jax.learner import known as known_lib
from mnemonics_jax.learner.known import Known, Scores
from mnemonics_jax.memory import Codec, MemoryPolicy
from mnemonics_jax.methods import Method
from mnemonics_jax.nn.augment import AUGMENTATIONS, Augmentation
from mnemonics_jax.phase import Config, OpenShape, PhaseData, Schedule
from mnemonics_jax.progress import Report
from mnemonics_jax.readouts import READOUTS
from mnemonics_jax.settings import Settings, build, presets
from mnemonics_jax.types import PhaseState

if TYPE_CHECKING:  # `optional` adds the keywords of a recipe.
  _Recipe = settings_lib.Recipe
else:
  _Recipe = settings_lib.Declared

_PARTS = ("method", "network", "bilevel", "base", "train", "balance")


@dataclasses.dataclass(frozen=True)
@settings_lib.optional(settings_lib.Recipe)
class Learner(_Recipe):
  """Settings for learning classes call by call.

  `learn` returns everything learned so far as an immutable `Known`, which the other
  methods take. The keywords beside these attributes are the settings of a run, such
  as `exemplars`, `epochs` and `finetune` (`settings.Recipe`). One that is None takes
  its value from the preset.

  Attributes:
    network: `resnet8`, `resnet18`, `resnet32`; or your own linen module, whose
      `features(images, train)`, or else `__call__`, returns features; or an object
      with the methods of `Network`.
    method: the base method, by name or as a value.
    memory: budget of exemplars, such as `per_class:20`, `total:2000` or
      `per_class_bytes:61440`.
    preset: `paper`, `fast` (a quarter of its epochs), `short` (a CPU's minutes),
      `best` (as short, with JPEGs in the bytes of 20 raw images) or `smoke` (only
      to see it work).
    seed: of initialisation, sampling and augmentation.
    augment: of training images, by name or as a function of key and images.
    codec: storage of exemplars: `raw`, `jpeg:75`, `webp:75`.
    bilevel: how exemplars are learned, instead of `recipe`, `max_change` and so on.
    base: schedule of the first classes, instead of `base_epochs` and so on.
    train: schedule of later classes, instead of `epochs` and so on.
    balance: schedule of the fine-tune, instead of `finetune_epochs` and so on.
  """

  network: Any = "resnet32"
  method: str | Method = "lucir"
  if not TYPE_CHECKING:  # A keyword of `_Recipe` for type checkers.
    exemplars: str | None = settings_lib.redefault(
      settings_lib.Recipe, "exemplars", None, positional=True
    )
  memory: str | MemoryPolicy | None = None
  preset: str = "short"
  seed: int = 0
  augment: str | Augmentation = "crop_flip"
  codec: str | Codec | None = None
  bilevel: BilevelConfig | None = None
  base: Schedule | None = None
  train: Schedule | None = None
  balance: Schedule | None = None

  def __post_init__(self):
    super().__post_init__()
    check_count("seed", self.seed, most=2**32 - 1)
    for name in ("method", "augment", "preset"):
      if isinstance(value := getattr(self, name), str):
        Settings.check_value(name, value)
    if isinstance(self.network, str) and self.network not in registry.NETWORKS:
      raise UserError(
        "network",
        f"`network={self.network}` is not known",
        f"choose one of {', '.join(registry.NETWORKS)}",
      )
    self._policy((1, 1, 1))  # Refuses a wrong memory or codec.
    values = {
      part for part in _PARTS
      if not isinstance(getattr(self, part), str | None)
    }  # fmt: skip
    for field in settings_lib.declared(settings_lib.Recipe):
      parts = {place.partition(".")[0] for place in field.metadata["to"]}
      given = getattr(self, field.name) is not None
      if given and parts and parts <= values:
        raise UserError(
          field.name,
          f"`{field.name}` has no effect with a value for `{min(parts)}`",
          "leave out one of them",
        )

  def learn(
    self,
    known: Known | None,
    images: Any,
    names: Iterable[Any],
    *,
    test: tuple[Any, Iterable[Any]] | None = None,
    report: Report | None = None,
  ) -> Known:
    """Learns new classes in one phase and leaves `known` unchanged.

    Args:
      known: what was learned before, None for the first classes.
      images: uint8, [n, h, w, channels], of the new classes only.
      names: of the class of each image; anything that can be a key of a dict.
      test: images and names to evaluate on afterwards; see `Known.result`.
      report: receives progress; by default it is printed to stderr.
    """
    inputs.check_incremental(self._method)
    shape = known and known.network.image_shape
    images = inputs.as_images(images, shape)
    named = inputs.as_names(names, len(images))
    before = known.names if known else ()
    seen = (*before, *inputs.new_names(named, before))
    labels = inputs.as_labels(named, seen)
    order = np.argsort(labels, kind="stable")  # One class after the other.
    images, labels = images[order], labels[order]
    network = known.network if known else self._network(images)
    phases = (*(known.phases if known else ()), len(seen) - len(before))
    fits = memory_lib.fit(*self._policy(images.shape[1:]), images)
    fitted = dataclasses.replace(self, memory=fits)
    config = fitted._config(network, phases, labels, known and known.state)
    state = phase.begin_run(self.seed, config)
    if known is not None:
      known_lib.check_head(self._method, known)
      state = known_lib.resized(known.state, state)
    tested = images[:0], labels[:0]
    if test is not None:
      tested = inputs.labelled(*test, network.image_shape, seen)
    data = PhaseData(images, labels, phases[-1], *tested)
    train = phase.train_model
    if known is None and self.base_model is not None:
      from mnemonics_jax.runs import base_models

      train = base_models.begin_with(base_models.load(self.base_model), seen)
    with _reporting(report) as hear:
      state, result = phase.run_phase(
        state, data, config, report=hear, train=train
      )
    return Known(
      state, seen, phases, network, result if test is not None else None
    )

  def _config(
    self,
    network: Any,
    phases: tuple[int, ...],
    labels,
    state: PhaseState | None,
  ) -> Config:
    """The configuration of the phase that learns images with these labels."""
    counts = np.zeros(0, int) if state is None else state.memory.counts
    settings = self._settings
    # An imitated phase has as many new classes as this one.
    imitates = bool(settings.drift or settings.imitate)
    shape = OpenShape(
      phases,
      known_lib.room_for(sum(phases) + imitates * phases[-1]),
      images=len(labels),
      largest_class=int(np.bincount(labels).max()),
      exemplars=int(counts.sum()),
      image_shape=tuple(network.image_shape),
    )
    values = {name: getattr(self, name) for name in _PARTS[2:]}
    memory, codec = self._policy(network.image_shape)
    derived = dict(
      network=network,
      method=self._method,
      shape=shape,
      memory=memory,
      codec=codec,
      augment=self._augment,
      **{name: value for name, value in values.items() if value is not None},
    )
    return Config(**{**build.fields(settings), **derived})

  @functools.cached_property
  def _settings(self) -> Settings:
    """The settings of a run that does the same, as far as they have names."""
    names = [field.name for field in settings_lib.declared(settings_lib.Recipe)]
    given = {name: getattr(self, name) for name in [*names, "memory", "codec"]}
    given["method"] = getattr(self.method, "name", self.method)
    if given["method"] not in registry.METHODS:  # The user's own.
      del given["method"]
    given = {
      name: value
      for name, value in given.items()
      if value is not None and (name in names or isinstance(value, str))
    }
    found = presets.values("learner", self.preset, given)
    return Settings("learner", self.preset, **{**found, **given})

  def _network(self, images):
    if self.base_model is not None:
      from mnemonics_jax.runs import base_models

      return inputs.network_for(base_models.network(self.base_model), images)
    options = build.network_options(self._settings, self._method)
    return inputs.network_for(self.network, images, **options)

  @functools.cached_property
  def _method(self) -> Method:
    if isinstance(self.method, str):
      return build.method(self._settings)
    return self.method

  def _policy(self, image_shape: tuple[int, ...]) -> tuple[MemoryPolicy, Codec]:
    """Budget and codec; a preset keeps as many raw images of every size."""
    memory = self.memory or presets.of_size(self._settings.memory, image_shape)
    codec = self.codec or self._settings.codec
    return memory_lib.parse(memory), memory_lib.parse_codec(codec)

  @property
  def _augment(self) -> Augmentation:
    augment = self.augment
    return AUGMENTATIONS[augment] if isinstance(augment, str) else augment

  @property
  def readout(self) -> str:
    """The method's own read-out, `head` or `nme`."""
    return self._method.readout

  def predict(
    self, known: Known, images: Any, *, readout: str | None = None
  ) -> np.ndarray:
    """The class name of each image.

    Args:
      known: what was learned.
      images: uint8, of the size that was learned.
      readout: `head` or `nme`; None is the method's own.
    """
    names = np.empty(len(known.names), object)
    names[:] = known.names
    if {type(name) for name in known.names} in ({str}, {int}):
      names = np.array(known.names)
    return names[self._scores(known, images, readout).argmax(-1)]

  def predict_proba(
    self, known: Known, images: Any, *, readout: str | None = None
  ) -> Float[np.ndarray, "n seen"]:
    """The probability of each class, in the order of `known.names`.

    `head` gives the softmax of the logits, `nme` that of 10 times the cosines to
    the class means. The arguments are those of `predict`.
    """
    scores = self._scores(known, images, readout)
    return READOUTS[readout or self.readout]().probabilities(scores)

  def features(self, known: Known, images: Any) -> Float[np.ndarray, "n d"]:
    """The network's features of images, which the head takes."""
    images = inputs.as_images(images, known.network.image_shape)
    return known_lib.read(self._method, known, images)[0]

  def evaluate(
    self,
    known: Known,
    images: Any,
    names: Iterable[Any],
    *,
    readout: str | None = None,
  ) -> Scores:
    """Accuracies and confusion on images of known classes.

    Args:
      known: what was learned.
      images: uint8, of the size that was learned.
      names: true class name of each image.
      readout: `head` or `nme`; None is the method's own.
    """
    shape = known.network.image_shape
    images, labels = inputs.labelled(images, names, shape, known.names)
    guesses = self._scores(known, images, readout).argmax(-1)
    return known_lib.grade(known, labels, guesses)

  def _scores(self, known, images, readout):
    images = inputs.as_images(images, known.network.image_shape)
    readout = readout or self.readout
    return known_lib.class_scores(self._method, known, images, readout)

  def save(self, known: Known, path: str | Path) -> None:
    """Writes the learner and `known`; replaces a learner saved there before.

    Args:
      known: what was learned.
      path: a new directory, or one of a learner saved before.
    """
    from mnemonics_jax.runs import learners

    learners.save(self, known, Path(path))

  @classmethod
  def load(
    cls,
    path: str | Path,
    *,
    network: Any = None,
    seed: int | None = None,
    phase: int | None = None,
  ) -> "tuple[Learner, Known]":
    """Reads a learner and what it knows.

    Args:
      path: a directory of `save` or of `runs.export`, or a run's work directory.
      network: the network, if it is your own: code is not saved.
      seed: one of the run's seeds; None is its first.
      phase: one of the run's phases, to load the state after it; None is the last.
    """
    from mnemonics_jax.runs import learners

    return learners.load(Path(path), network, seed, phase)


@contextlib.contextmanager
def _reporting(report: Report | None) -> Iterator[Report]:
  """The caller's report, or else a console on stderr."""
  if report is not None:
    yield report
    return
  from mnemonics_jax.report.console import Console

  with Console(stream=sys.stderr) as console:
    yield console
