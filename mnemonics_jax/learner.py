"""What a user holds: a learner that is told of new classes, call by call.

>>> import numpy as np
>>> from mnemonics_jax import Learner, data
>>> digits = data.load("digits")
>>> images, names = digits.train_images, digits.train_labels
>>> learner = Learner("resnet8", memory="per_class:5", preset="smoke")
>>> known = learner.learn(None, images[names < 3], names[names < 3])
>>> known = learner.learn(known, images[names == 3], names[names == 3])
>>> known.names
(0, 1, 2, 3)
>>> learner.predict(known, images[:2]).shape
(2,)
"""

from collections.abc import Hashable, Iterable, Mapping
import contextlib
import dataclasses
from pathlib import Path
import sys
from typing import Any, NamedTuple

from flax import linen
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, UInt8
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import phase
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.errors import UserError
from mnemonics_jax.memory import MemoryPolicy
from mnemonics_jax.methods import METHODS, Method
from mnemonics_jax.nn.augment import AUGMENTATIONS, Augmentation
from mnemonics_jax.nn.model import Model
from mnemonics_jax.nn.networks import NETWORKS, Network
from mnemonics_jax.phase import Config, OpenShape, PhaseData, Schedule
from mnemonics_jax.phase import evaluate as readouts
from mnemonics_jax.progress import Report
from mnemonics_jax.registry import READOUTS
from mnemonics_jax.types import Memory, PhaseResult, PhaseState

Name = Hashable
Images = UInt8[np.ndarray, "n h w c"]

# What a preset says where the learner itself says nothing. The schedules are
# those of the command line's presets of the same names.
_PRESETS: Mapping[str, Mapping[str, Any]] = {
  "paper": dict(
    init_exemplars="random",
    adjust=True,
    bilevel=BilevelConfig.paper(),
    transfer="in_out",
    finetune="all",
    base=Schedule(),
    train=Schedule(),
    balance=Schedule(50, 0.01, ()),
  ),
  "short": dict(
    finetune="head",
    base=Schedule(20, milestones=(10, 15)),
    train=Schedule(10, milestones=(5, 7)),
    balance=Schedule(10, 0.01, ()),
  ),
  "smoke": dict(
    finetune="head",
    bilevel=BilevelConfig(epochs=1),
    base=Schedule(2, milestones=(1,)),
    train=Schedule(1, milestones=()),
    balance=Schedule(1, 0.01, ()),
  ),
}


class Known(NamedTuple):
  """What has been learned: a value, to keep, save, or go on from.

  Attributes:
    state: Θ, the memory, and where the next phase begins.
    names: of the classes, in the order in which they were learned.
    phases: how many of them each call of `learn` brought.
    network: images to features; knows size and normalisation of the images.
    result: what the last phase measured, None if nothing was tested.
  """

  state: PhaseState
  names: tuple[Name, ...]
  phases: tuple[int, ...]
  network: Network
  result: PhaseResult | None = None

  @property
  def exemplars(self) -> tuple[Images, tuple[Name, ...]]:
    """The images in the memory, and the name of each."""
    images, labels = memory_lib.flat(self.state.memory)
    return images, tuple(self.names[label] for label in labels)


class Scores(NamedTuple):
  """How well images are named.

  Attributes:
    accuracy: share of the images that are named correctly.
    by_class: the same for each class that occurs.
    confusion: counts [true class, predicted class], in the order of `names`.
  """

  accuracy: float
  by_class: dict[Name, float]
  confusion: Int[np.ndarray, "seen seen"]


@dataclasses.dataclass(frozen=True)
class Learner:
  """How classes are learned; what is known is a value of its own.

  The module's docstring has an example. Fields that are None take the value of
  the preset.

  Attributes:
    network: `resnet8`, `resnet18`, `resnet32`; or a network of your own: a linen
      module whose `__call__(images, train)` returns features, or a `Network`.
    method: the base method, by name or as a value.
    exemplars: `random`, `herding` or `mnemonics`.
    memory: what may be kept of a class, such as `per_class:20` or `total:2000`.
    preset: `paper`, `short` (a CPU's minutes) or `smoke` (only to see it work).
    seed: of initialisation, sampling and augmentation.
    room: classes that the head has room for at first; it doubles when needed.
    augment: of training images, by name or as a function of key and images.
    init_exemplars: see `phase.Config`, as for all below.
    adjust: whether old exemplars are adjusted.
    bilevel: how exemplars are learned.
    transfer: weight transfer.
    finetune: what the balanced fine-tune trains.
    base: schedule of the first call.
    train: schedule of the later ones.
    balance: schedule of the fine-tune.
  """

  network: str | linen.Module | Network = "resnet32"
  method: str | Method = "lucir"
  exemplars: str = "mnemonics"
  memory: str | MemoryPolicy = "per_class:20"
  preset: str = "short"
  seed: int = 0
  room: int = 8
  augment: str | Augmentation = "crop_flip"
  init_exemplars: str | None = None
  adjust: bool | None = None
  bilevel: BilevelConfig | None = None
  transfer: str | None = None
  finetune: str | None = None
  base: Schedule | None = None
  train: Schedule | None = None
  balance: Schedule | None = None

  def __post_init__(self):
    named = {"network": NETWORKS, "method": METHODS, "augment": AUGMENTATIONS}
    for field, choices in {**named, "preset": _PRESETS}.items():
      value = getattr(self, field)
      if isinstance(value, str) and value not in choices:
        raise UserError(
          field,
          f"`{field}={value}` is not known",
          f"choose one of {', '.join(choices)}",
        )

  # Learning.

  def learn(
    self,
    known: Known | None,
    images: np.ndarray,
    names: Iterable[Name],
    *,
    test: tuple[np.ndarray, Iterable[Name]] | None = None,
    report: Report | None = None,
  ) -> Known:
    """Learns new classes: one phase. What was known before stays as it is.

    Args:
      known: what was learned before, None for the first classes.
      images: uint8, [n, h, w, channels], of the new classes only.
      names: of the class of each image; anything that can be a key of a dict.
      test: images and names of classes known afterwards, measured in `result`.
      report: hears where it is; by default a terminal shows it.
    """
    if self._method.joint:
      raise UserError(
        "method",
        "`method=joint` needs the images of all classes in every phase",
        "choose one that learns from new classes alone, such as lucir",
      )
    images, names = _images(images), _names(names)
    before = () if known is None else known.names
    new = _new_names(names, len(images), before)
    network = self._network(images) if known is None else known.network
    _check_shape(images, network.image_shape)
    images, labels = _by_class(images, names, (*before, *new))
    phases = (*(known.phases if known else ()), len(new))
    config = self._config(network, phases, labels, known and known.state)
    state = phase.begin_run(self.seed, config)
    if known is not None:
      state = _grown(known.state, state)
    after = Known(state, (*before, *new), phases, network)
    nothing = images[:0], labels[:0]
    tested = nothing if test is None else self._tested(after, *test)
    data = PhaseData(images, labels, len(new), *tested)
    with _followed(report) as hear:
      state, result = phase.run_phase(state, data, config, report=hear)
    return after._replace(state=state, result=result if test else None)

  def _config(self, network, phases, labels, state):
    """Of the phase that brings images with these labels."""
    counts = np.zeros(0, int) if state is None else state.memory.counts
    shape = OpenShape(
      phases,
      _room(sum(phases), len(counts) or self.room),
      images=len(labels),
      largest_class=int(np.bincount(labels).max()),
      exemplars=int(counts.sum()),
      image_shape=network.image_shape,
    )
    return self._phase_config(network, shape)

  def _phase_config(self, network, shape):
    chosen = {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(Config)
      if getattr(self, field.name, None) is not None
    }
    return Config(
      **{
        **_PRESETS[self.preset],
        **chosen,
        "network": network,
        "method": self._method,
        "shape": shape,
        "memory": self._policy,
        "augment": self._augment,
      }
    )

  @property
  def _method(self) -> Method:
    method = self.method
    return METHODS[method]() if isinstance(method, str) else method

  @property
  def _policy(self) -> MemoryPolicy:
    memory = self.memory
    return memory_lib.parse(memory) if isinstance(memory, str) else memory

  @property
  def _augment(self) -> Augmentation:
    augment = self.augment
    return AUGMENTATIONS[augment] if isinstance(augment, str) else augment

  def _network(self, images):
    """The network for images like these, which it normalises."""
    network, (_, height, width, channels) = self.network, images.shape
    if isinstance(network, Network):
      return network
    if isinstance(network, linen.Module):
      return Network(network, (height, width, channels))
    pixels = images.reshape(-1, channels) / 255
    return NETWORKS[network](
      image_shape=(height, width, channels),
      mean=pixels.mean(0).round(4).tolist(),
      std=np.maximum(pixels.std(0), 1e-2).round(4).tolist(),
    )

  # Asking.

  def predict(
    self, known: Known, images: np.ndarray, *, readout: str | None = None
  ) -> np.ndarray:
    """The name of each image.

    Args:
      known: what was learned.
      images: uint8, of the size that was learned.
      readout: `head` or `nme`; None is the method's own.
    """
    best = self.predict_proba(known, images, readout=readout).argmax(-1)
    names = np.empty(len(known.names), object)
    names[:] = known.names
    if {type(name) for name in known.names} in ({str}, {int}):
      names = np.array(known.names)
    return names[best]

  def predict_proba(
    self, known: Known, images: np.ndarray, *, readout: str | None = None
  ) -> Float[np.ndarray, "n seen"]:
    """How likely each class is for each image, in the order of `known.names`.

    The nearest mean has no probabilities of its own: its are the softmax of the
    cosines times 10. The arguments are those of `predict`.
    """
    readout = self._readout(readout)
    features, logits = self._extract(known, images)
    seen = len(known.names)
    if readout == "nme":
      means = self._class_means(known)
      logits = 10 * readouts.normalize(features) @ means.T
    return np.asarray(jax.nn.softmax(logits[:, :seen], axis=-1))

  def features(
    self, known: Known, images: np.ndarray
  ) -> Float[np.ndarray, "n d"]:
    """What the network makes of images, before the head."""
    return self._extract(known, images)[0]

  def evaluate(
    self,
    known: Known,
    images: np.ndarray,
    names: Iterable[Name],
    *,
    readout: str | None = None,
  ) -> Scores:
    """How well images of known classes are named.

    Args:
      known: what was learned.
      images: uint8, of the size that was learned.
      names: what they show.
      readout: `head` or `nme`; None is the method's own.
    """
    images, labels = self._tested(known, images, names)
    guesses = self.predict_proba(known, images, readout=readout).argmax(-1)
    confusion = readouts.confusion(labels, guesses, len(known.names))
    counts = confusion.sum(1)
    by_class = {
      name: float(confusion[i, i] / counts[i])
      for i, name in enumerate(known.names)
      if counts[i]
    }
    return Scores(float((labels == guesses).mean()), by_class, confusion)

  def _readout(self, readout):
    readout = readout or self._method.readout
    if readout not in READOUTS:
      raise UserError(
        "readout",
        f"`readout={readout}` is not known",
        f"choose one of {', '.join(READOUTS)}",
      )
    return readout

  def _extract(self, known, images):
    images = _images(images)
    _check_shape(images, known.network.image_shape)
    classes = len(known.state.memory.counts)
    model = Model(known.network, self._method.head, classes)
    variables = known.state.variables
    return readouts.extract(model, self._method, variables, images)

  def _class_means(self, known):
    images, labels = memory_lib.flat(known.state.memory)
    features, _ = self._extract(known, images)
    means = readouts.class_means(features, labels, len(known.names))
    return readouts.normalize(means)

  def _tested(self, known, images, names):
    """Test images and their labels; classes that nobody learned are refused."""
    images, names = _images(images), _names(names)
    _check_count(names, len(images))
    place = {name: label for label, name in enumerate(known.names)}
    if unknown := [name for name in dict.fromkeys(names) if name not in place]:
      raise UserError(
        "names",
        f"{_listed(unknown)} was not learned",
        f"known are {_listed(known.names)}",
      )
    return images, np.array([place[name] for name in names], np.int32)

  # Keeping.

  def save(self, known: Known, path: str | Path) -> None:
    """Writes the learner and what it knows; replaces what was saved there."""
    from mnemonics_jax.runs import learners

    learners.save(self, known, Path(path))

  @classmethod
  def load(
    cls,
    path: str | Path,
    *,
    network: linen.Module | Network | None = None,
    seed: int | None = None,
    phase: int | None = None,
  ) -> "tuple[Learner, Known]":
    """A learner and what it knows: of `save`, or of a run's work directory.

    Args:
      path: where it is.
      network: the network, if it is one of your own: code is not saved.
      seed: which of a run's seeds; None is its first.
      phase: after which of a run's phases; None is the last.
    """
    from mnemonics_jax.runs import learners

    return learners.load(Path(path), network, seed, phase)


# What comes in.


def _images(images):
  images = np.asarray(images)
  if images.ndim == 3:
    images = images[..., None]
  if images.dtype != np.uint8 or images.ndim != 4:
    raise UserError(
      "images",
      f"images are {images.dtype} of shape {images.shape}",
      "give uint8 pixels in 0..255 of shape [n, height, width, channels]",
    )
  return images


def _names(names):
  """As a list of plain values, not NumPy's."""
  plain = lambda name: name.item() if isinstance(name, np.generic) else name
  return [plain(name) for name in names]


def _check_shape(images, shape):
  if images.shape[1:] != tuple(shape):
    raise UserError(
      "images",
      f"images are {_size(images.shape[1:])}, the network takes {_size(shape)}",
      "resize them",
    )


def _size(shape):
  return "×".join(map(str, shape))


def _check_count(names, images):
  if len(names) != images:
    raise UserError(
      "names",
      f"there are {images} images and {len(names)} names",
      "give the name of the class of each image",
    )


def _new_names(names, images, before):
  """The names that arrive, in the order of their first images."""
  _check_count(names, images)
  new = list(dict.fromkeys(names))
  if again := [name for name in new if name in set(before)]:
    raise UserError(
      "names",
      f"{_listed(again)} was learned before",
      "give images of new classes only",
    )
  if len(new) + len(before) < 2:
    raise UserError(
      "names",
      "there is nothing to tell apart: the images show fewer than two classes",
      "begin with two or more",
    )
  return new


def _listed(names, most=5):
  more = ", ..." if len(names) > most else ""
  return ", ".join(repr(name) for name in names[:most]) + more


def _by_class(images, names, known):
  """Images and labels, one class after the other."""
  place = {name: label for label, name in enumerate(known)}
  labels = np.array([place[name] for name in names], np.int32)
  order = np.argsort(labels, kind="stable")
  return images[order], labels[order]


# Room for more.


def _room(needed, room):
  while room < needed:
    room *= 2
  return room


def _grown(state, begin):
  """The state with the room of another one, as if it had had it all along.

  Args:
    state: what is known.
    begin: of the same seed, before anything was known; a longer head begins with
      the rows of a shorter one.
  """
  if state.memory.images.shape == begin.memory.images.shape:
    return state
  variables = jax.tree.map(_longer, state.variables, begin.variables)
  images, counts = state.memory
  slots = max(images.shape[1], begin.memory.images.shape[1])
  grid = np.zeros(
    (len(begin.memory.counts), slots, *images.shape[2:]), np.uint8
  )
  grid[: images.shape[0], : images.shape[1]] = images
  counts = np.pad(counts, (0, len(grid) - len(counts)))
  return state._replace(variables=variables, memory=Memory(grid, counts))


def _longer(have, fresh):
  if np.shape(have) == np.shape(fresh):
    return have
  return jnp.concatenate([jnp.asarray(have), fresh[len(have) :]])


@contextlib.contextmanager
def _followed(report):
  """Whoever hears of progress: the caller, or a terminal."""
  if report is not None:
    yield report
    return
  from mnemonics_jax.report.console import Console

  with Console(stream=sys.stderr) as console:
    yield console
