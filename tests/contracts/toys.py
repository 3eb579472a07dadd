"""A toy of each family, and toys that break one promise each.

Each is what the guides ask for: a class or a function in a file, and an entry.
"""

import dataclasses
from typing import Any, ClassVar

from flax import linen
import jax
import jax.numpy as jnp
import numpy as np

from mnemonics_jax import losses
from mnemonics_jax.exemplars import Strategy
from mnemonics_jax.memory import Raw
from mnemonics_jax.methods import Method
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.readouts import NearestMean, Readout


@dataclasses.dataclass(frozen=True)
class Replay(Method):
  """Cross-entropy, and a price on the size of features."""

  name: ClassVar[str] = "toy"
  weight: float = 0.01

  def loss(self, student, teacher, labels, classes):
    ce = losses.cross_entropy(student.logits, labels, classes.seen)
    size = jnp.mean(student.features**2)
    return ce + self.weight * size, {"cross_entropy": ce, "size": size}


@dataclasses.dataclass(frozen=True)
class OfAnotherName(Replay):
  name: ClassVar[str] = "toys"


@dataclasses.dataclass(frozen=True)
class WithoutIdentity(Replay):
  name: ClassVar[str] = "toy_without_identity"
  weight: Any = np.float32(0.01)  # No number of JSON.


@dataclasses.dataclass(frozen=True)
class SeesTheFuture(Replay):
  """Classes to come get a share of the probability."""

  name: ClassVar[str] = "toy_sees_the_future"

  def loss(self, student, teacher, labels, classes):
    classes = classes._replace(new=classes.new | True)
    return super().loss(student, teacher, labels, classes)


@dataclasses.dataclass(frozen=True)
class Idle(Replay):
  name: ClassVar[str] = "toy_idle"

  def loss(self, student, teacher, labels, classes):
    return 0.0 * student.logits.sum(), {}


@dataclasses.dataclass(frozen=True)
class Greedy(Replay):
  """Asks for the data of all classes seen, which the upper bound alone may."""

  name: ClassVar[str] = "toy_greedy"
  joint: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class MovesHeldRows(Replay):
  name: ClassVar[str] = "toy_moves_held_rows"

  def begin_phase(self, variables, means, classes):
    head = jax.tree.map(lambda x: 0.5 * x, variables["params"]["head"])
    return variables | {"params": variables["params"] | {"head": head}}


@dataclasses.dataclass(frozen=True)
class Grows(Replay):
  """An array has another shape in each phase."""

  name: ClassVar[str] = "toy_grows"

  def begin_run(self, variables):
    return variables | {"phases": jnp.zeros(1)}

  def begin_phase(self, variables, means, classes):
    longer = jnp.zeros(len(variables["phases"]) + 1)
    return variables | {"phases": longer}


@dataclasses.dataclass(frozen=True)
class Forgets(Replay):
  """Draws from a state that is no part of the run."""

  name: ClassVar[str] = "toy_forgets"

  def begin_phase(self, variables, means, classes):
    drawn = np.random.default_rng().normal(size=())
    head = variables["params"]["head"]
    head = head | {"bias": head["bias"] + drawn * classes.new}
    return variables | {"params": variables["params"] | {"head": head}}


class _Flat(linen.Module):
  mean: tuple[float, ...]
  std: tuple[float, ...]
  width: int
  dtype: str | None = None
  stop: bool = False

  @linen.compact
  def __call__(self, images, train):
    mean, std = jnp.array(self.mean), jnp.array(self.std)
    x = ((images - mean) / std).reshape(len(images), -1)
    x = jax.lax.stop_gradient(x) if self.stop else x
    return linen.Dense(self.width, dtype=self.dtype)(x).astype(images.dtype)


def flat(*, image_shape, mean, std, width=8, dtype=None, **options):
  module = _Flat(tuple(mean), tuple(std), width, dtype, **options)
  return Network(module, tuple(image_shape))


def blind(**options):
  """Its features pass no gradient to the pixels."""
  return flat(stop=True, **options)


def unnormalised(*, mean, std, **options):
  del mean, std
  return flat(mean=(0.0,) * 3, std=(1.0,) * 3, **options)


def full(*, dtype=None, **options):
  """Float32, whatever is asked for."""
  return flat(**options)


@dataclasses.dataclass(frozen=True)
class Inverted(Raw):
  """Negatives, as PNG outside."""

  def encode(self, images):
    return super().encode(255 - images)

  def decode(self, codes, shape):
    return 255 - super().decode(codes, shape)

  def to_file(self, code, shape):
    return super().to_file(255 - code, shape)

  def from_file(self, content, shape):
    return bytes(255 - np.frombuffer(super().from_file(content, shape), "u1"))

  def __str__(self):
    return "toy"


@dataclasses.dataclass(frozen=True)
class Lossy(Inverted):
  """Says that it is exact."""

  def encode(self, images):
    return super().encode(images // 16 * 16)


@dataclasses.dataclass(frozen=True)
class OneWay(Inverted):
  """Files are not those that it reads."""

  def from_file(self, content, shape):
    return super().from_file(content, shape)[::-1]


@dataclasses.dataclass(frozen=True)
class NearestExemplar(Readout):
  """The distance to the nearest exemplar of each class."""

  def scores(self, features, logits, exemplars, seen):
    kept, labels = exemplars()
    distances = np.linalg.norm(features[:, None] - kept, axis=-1)
    of = lambda label: distances[:, labels == label].min(1)
    return -np.stack([of(label) for label in range(seen)], 1)


@dataclasses.dataclass(frozen=True)
class Unseen(NearestExemplar):
  """Scores of classes to come, too."""

  def scores(self, features, logits, exemplars, seen):
    return logits


@dataclasses.dataclass(frozen=True)
class Together(NearestMean):
  """Scores depend on the other images that are asked about."""

  def scores(self, features, logits, exemplars, seen):
    features = features - features.mean(0)
    return super().scores(features, logits, exemplars, seen)


@dataclasses.dataclass(frozen=True)
class Darkest(Strategy):
  """The darkest images of each class."""

  ordered: ClassVar[bool] = True

  def pick(self, rng, look, rows, count):
    light = look.images[rows].mean((1, 2, 3))
    return rows[np.argsort(light, kind="stable")[:count]]


@dataclasses.dataclass(frozen=True)
class Twice(Darkest):
  """The same image again and again."""

  def pick(self, rng, look, rows, count):
    return np.repeat(super().pick(rng, look, rows, 1), count)


@dataclasses.dataclass(frozen=True)
class Lazy(Darkest):
  """Fewer than there is room for."""

  def pick(self, rng, look, rows, count):
    return super().pick(rng, look, rows, 2)


@dataclasses.dataclass(frozen=True)
class Relative(Strategy):
  """Those with features unlike the mean of all that are looked at."""

  ordered: ClassVar[bool] = True
  features: ClassVar[bool] = True

  def pick(self, rng, look, rows, count):
    away = np.linalg.norm(look.features - look.features.mean(0), axis=1)
    return rows[np.argsort(-away[rows], kind="stable")[:count]]


_DRAWS = np.random.default_rng(0)


@dataclasses.dataclass(frozen=True)
class Moody(Strategy):
  """Random images, that nobody can draw again."""

  def pick(self, rng, look, rows, count):
    return _DRAWS.permutation(rows)[:count]
