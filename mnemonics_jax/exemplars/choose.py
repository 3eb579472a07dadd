"""Strategies that choose exemplars among the images of a class."""

from collections.abc import Iterator, Mapping
import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Bool, Float, Int, UInt8
import numpy as np

from mnemonics_jax import bilevel, registry
from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.images import Images, read
from mnemonics_jax.exemplars.level import Level, pad
from mnemonics_jax.parallel import mesh
from mnemonics_jax.phase import draws, evaluate
from mnemonics_jax.phase.config import Config
from mnemonics_jax.phase.context import Phase, Stage
from mnemonics_jax.phase.evaluate import extract_features
from mnemonics_jax.readouts.nme import normalize
from mnemonics_jax.types import Variables

# Images that are encoded and decoded at a time.
_BLOCK = 4096


class Chosen(NamedTuple):
  """Images of the new classes that become exemplars, and what chose them.

  Attributes:
    images: class after class, as they were before the memory encodes them.
    labels: their classes.
    inputs: all new images, or their features, to learn exemplars from.
    input_labels: their classes.
  """

  images: UInt8[np.ndarray, "n h w c"]
  labels: Int[np.ndarray, " n"]
  inputs: Images
  input_labels: Int[np.ndarray, " m"]


class Look(NamedTuple):
  """Images of some new classes as the model sees them.

  Features are empty unless the strategy wants them.

  Attributes:
    images: of the classes.
    features: of the images.
    kept: the same, of the images as the memory will give them back.
  """

  images: Images
  features: Float[np.ndarray, "n d"]
  kept: Float[np.ndarray, "n d"]


class NewImages(NamedTuple):
  """The images that exemplars are chosen among.

  Images that the method never trains on become exemplars in any case, see
  `draws.held_share`.

  Attributes:
    phase: whose they are.
    images: of the new classes alone; the upper bound sees others, too.
    labels: their classes.
    held: which are never trained on.
  """

  phase: Phase
  images: Images
  labels: Int[np.ndarray, " n"]
  held: Bool[np.ndarray, " n"]

  @classmethod
  def of(cls, phase: Phase) -> "NewImages":
    data = phase.data
    new = data.labels >= phase.classes_old
    return cls(phase, data.images[new], data.labels[new], phase.held_out[new])

  @property
  def _apart(self):
    fraction = self.phase.config.method.holdout
    return functools.partial(draws.held_share, fraction=fraction)

  def pick(
    self,
    strategy: "Strategy",
    variables: Variables,
    *,
    times: int = 1,
    together: bool,
  ) -> tuple[np.ndarray, np.ndarray, Look]:
    """Rows that a strategy picks, the bytes of all images, and the last look.

    Args:
      strategy: picks among the images of a class.
      variables: Θ_i.
      times: how many times as many rows as a class may keep.
      together: whether one look has all images. Otherwise features of no more
        classes are in memory than must be.
    """
    phase, config = self.phase, self.phase.config
    rng = phase.keys.numpy("select")
    count = times * (phase.allowance - self._apart(phase.allowance))
    groups = self._groups()
    if together:
      groups = [(range(phase.classes_old, phase.classes_seen), slice(None))]
    picks, all_sizes, look = [], [], None
    for classes, rows in groups:
      images, first = self.images[rows], rows.start or 0
      labels, held = self.labels[rows], self.held[rows]
      features = np.zeros((len(labels), 0), np.float32)
      if strategy.features or together:
        features = extract_features(
          config.model, config.method, variables, images
        )
      kept, sizes = features, np.full(len(labels), np.prod(images.shape[1:]))
      if not config.codec.exact:
        kept, sizes = self._kept(variables, images, strategy.features)
      look = Look(images, features, kept)
      for label in classes:
        free = np.flatnonzero((labels == label) & ~held)
        picks.append(first + strategy.pick(rng, look, free, count))
      all_sizes.append(sizes)
    assert look is not None
    return np.concatenate(picks), np.concatenate(all_sizes), look

  def _kept(self, variables, images, judged):
    """Features of images as they will be kept, if wanted, and their bytes."""
    config, found, sizes = self.phase.config, [], []
    for start in range(0, len(images), _BLOCK):
      rows = np.arange(start, min(start + _BLOCK, len(images)))
      codes = config.codec.encode(read(images, rows))
      sizes.append(codes.sizes)
      if judged:
        kept = config.codec.decode(codes, images.shape[1:])
        found.append(
          extract_features(config.model, config.method, variables, kept)
        )
    nothing = np.zeros((len(images), 0), np.float32)
    kept = np.concatenate(found) if judged else nothing
    return kept, np.concatenate(sizes)

  def _groups(self) -> Iterator[tuple[range, slice]]:
    """Some classes at a time, with the rows of their images."""
    classes = range(self.phase.classes_old, self.phase.classes_seen)
    if (np.diff(self.labels) < 0).any():
      yield classes, slice(None)
      return
    first, start = classes.start, 0
    for label in classes:
      stop = int(np.searchsorted(self.labels, label, side="right"))
      if stop - start >= evaluate.TOGETHER or label == classes[-1]:
        yield range(first, label + 1), slice(start, stop)
        first, start = label + 1, stop

  def fitting(self, picks: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Rows of each class that it may keep; held-out ones come first."""
    phase = self.phase
    picks = np.concatenate([np.flatnonzero(self.held), picks])
    budget = phase.allowance, self._apart, phase.bytes_allowance
    by_class = (
      picks[self.labels[picks] == label][: phase.allowance]
      for label in range(phase.classes_old, phase.classes_seen)
    )
    return np.concatenate(
      [
        rows[memory_lib.staying(None, sizes[rows], *budget)]
        for rows in by_class
      ]
    )

  def chosen(self, rows: np.ndarray, inputs: Images) -> Chosen:
    """These rows as exemplars."""
    images = read(self.images, rows)
    return Chosen(images, self.labels[rows], inputs, self.labels)


class Strategy:
  """How the exemplars of new classes are made.

  A strategy defines `pick`. One that does more than to pick defines others, too.

  Attributes:
    ordered: whether the first exemplars of a class are the best, so that these
      stay when the memory shrinks. Otherwise others are dropped at random.
    features: whether `pick` wants the features of images.
  """

  ordered: ClassVar[bool] = False
  features: ClassVar[bool] = False

  @classmethod
  def of(cls, config: Config) -> "Strategy":
    """The strategy as settings describe it."""
    del config
    return cls()

  def pick(
    self,
    rng: np.random.Generator,
    look: Look,
    rows: Int[np.ndarray, " n"],
    count: int,
  ) -> Int[np.ndarray, " picks"]:
    """At most `count` of the rows of a class, the first one first.

    Args:
      rng: of the phase; classes draw from it in turn.
      look: what the model makes of the images.
      rows: of the images of a class in `look`.
      count: how many the class may keep.
    """
    raise NotImplementedError

  def choose(self, phase: Phase, variables: Variables) -> Chosen:
    """Exemplars of the new classes, as many as the memory allows for each.

    Images are judged by what is left of them in the memory.
    """
    new = NewImages.of(phase)
    picks, sizes, _ = new.pick(self, variables, together=False)
    return new.chosen(new.fitting(picks, sizes), new.images)

  def learn(
    self,
    phase: Phase,
    variables: Variables,
    chosen: Chosen,
    stage: Stage = Stage(),
  ) -> Any:
    """A `Change` of the chosen images; None if they stay as they are."""
    del phase, variables, chosen, stage

  def work(self, config: Config, phase: int) -> float:
    """Training steps that `learn` takes about as long as, for an estimate."""
    del config, phase
    return 0.0


@dataclasses.dataclass(frozen=True)
class Random(Strategy):
  """Images of a class at random."""

  def pick(self, rng, look, rows, count):
    return rows[rng.permutation(len(rows))[:count]]


def herding(
  features: Float[np.ndarray, "n d"],
  count: int,
  toward: Float[np.ndarray, "m d"] | None = None,
) -> Int[np.ndarray, " count"]:
  """Greedy choice whose running mean follows the class mean (Welling 2009).

  On normalised features x with mean μ: pick argmax w·x, then w ← w + μ − x.
  No image is picked twice; a shorter run is a prefix of a longer one.

  Args:
    features: of the candidates.
    count: how many are picked.
    toward: features whose mean is followed; None is the candidates' own.
  """
  x = np.asarray(normalize(features), np.float64)
  mean = x.mean(0)
  if toward is not None:
    mean = np.asarray(normalize(toward), np.float64).mean(0)
  weight, free, picks = mean.copy(), np.ones(len(x), bool), []
  for _ in range(min(count, len(x))):
    pick = int(np.argmax(np.where(free, x @ weight, -np.inf)))
    picks.append(pick)
    free[pick] = False
    weight += mean - x[pick]
  return np.asarray(picks, np.int64)


@dataclasses.dataclass(frozen=True)
class Herding(Strategy):
  """Images whose mean feature is that of their class (Rebuffi et al. 2017)."""

  ordered = True
  features = True

  def pick(self, rng, look, rows, count):
    return rows[herding(look.kept[rows], count, look.features[rows])]


@dataclasses.dataclass(frozen=True)
class Selected(Strategy):
  """Images with the best learned scores among the first of herding.

  Attributes:
    wider: candidates for each exemplar.
  """

  ordered = True
  wider: int = 3

  def choose(self, phase: Phase, variables: Variables) -> Chosen:
    new = NewImages.of(phase)
    picks, sizes, look = new.pick(
      Herding(), variables, times=self.wider, together=True
    )
    first = new.fitting(picks, sizes)
    counts = np.bincount(
      new.labels[first[~new.held[first]]], minlength=phase.config.model.classes
    )
    scores = self.scores(
      phase,
      variables,
      candidates=(look.kept[picks], new.labels[picks]),
      counts=counts,
      valid=(look.features, new.labels),
    )
    picks = picks[np.lexsort((-scores, new.labels[picks]))]
    return new.chosen(new.fitting(picks, sizes), new.images)

  def scores(
    self,
    phase: Phase,
    variables: Variables,
    candidates: tuple[Float[np.ndarray, "n d"], Int[np.ndarray, " n"]],
    counts: Int[np.ndarray, " classes"],
    valid: tuple[Float[np.ndarray, "m d"], Int[np.ndarray, " m"]],
  ) -> Float[np.ndarray, " n"]:
    """A learned score for each candidate; the highest should be kept.

    Args:
      phase: whose recipe says how long scores are learned.
      variables: Θ_i, whose head gives σ.
      candidates: features and labels, of each class in the order of herding.
      counts: how many of each class will be chosen.
      valid: features and labels of the new data.
    """
    config, later = phase.config, phase.classes_old > 0
    recipe = dataclasses.replace(config.bilevel, scope="head", batch_size=None)
    level = Level.of(recipe, config.model, config.method, config.augment)
    features, labels = candidates
    rank = np.arange(len(labels)) - np.searchsorted(labels, labels)
    start = -rank / np.maximum(counts[labels], 1)
    # Shapes that all later phases share.
    sizes = config.sizes
    rows = self.wider * sizes.new_exemplars if later else len(labels)
    valid_rows = sizes.later_pool if later else len(valid[1])
    found = bilevel.learn_choice(
      phase.keys("exemplars"),
      _padded(features, labels, rows),
      pad(start.astype(np.float32), rows),
      mesh.put_replicated(counts.astype(np.int32)),
      variables["params"]["head"],
      _padded(*valid, valid_rows),
      config=level.config,
      active=phase.classes.seen,
    )
    return np.asarray(found.scores)[: len(labels)]


def _padded(features, labels, rows):
  real = np.arange(rows) < len(labels)
  return bilevel.Features(
    pad(features, rows), pad(labels, rows), mesh.put_replicated(real)
  )


STRATEGIES: Mapping[str, type[Strategy]] = registry.Objects(registry.EXEMPLARS)


def strategy(config: Config) -> Strategy:
  """The strategy that `config.exemplars` names."""
  return STRATEGIES[config.exemplars].of(config)
