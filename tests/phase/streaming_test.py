"""Whole phases on images that are read when they are needed."""

import dataclasses

import jax
import numpy as np
import pytest
from support import tiny

from mnemonics_jax import bilevel, exemplars, methods, phase
from mnemonics_jax.data.images import Resident, Stored
from mnemonics_jax.nn.augment import CropFlip
from mnemonics_jax.phase import feed, train

ONCE = phase.Schedule(epochs=2, learning_rate=0.05, batch_size=16)


def _setup(method, **options):
  options = dict(base=ONCE, train=ONCE, balance=ONCE, split=(2, 1)) | options
  return tiny.setup(methods.METHODS[method](), **options)


def _stored(data, **options):
  """The same data, of which nothing is in memory."""
  train, test = (
    Resident(pixels, **options) for pixels in (data.images, data.test_images)
  )
  return _read_from(data, train, test)


def _read_from(data, train, test):
  images, test_images = (
    Stored(store, np.arange(len(store.images))) for store in (train, test)
  )
  return data._replace(images=images, test_images=test_images)


def _run(config, stream):
  state, results = phase.begin_run(0, config), []
  for data in stream:
    state, result = phase.run_phase(state, data, config)
    results.append(result)
  return state, results


def _numbers(run):
  """All that a run ends with, as bytes."""
  state, results = run
  arrays = jax.tree.leaves(
    (
      state.variables,
      (*state.memory.codes, state.memory.counts),
      [
        (r.confusion, r.changed, r.test_features, r.exemplar_features)
        for r in results
      ],
    )
  )
  return [np.asarray(array).tobytes() for array in arrays]


@pytest.mark.parametrize(
  "method, options",
  [
    ("bic", dict(exemplars="herding", finetune="head")),
    pytest.param(
      "bic",
      dict(
        exemplars="mnemonics",
        bilevel=dataclasses.replace(tiny.RECIPE, scope="all"),
        exemplar_chunk=1,
      ),
      marks=pytest.mark.slow,
    ),
    pytest.param(
      "lucir",
      dict(
        exemplars="mnemonics", adjust=True, transfer="in_out", finetune="all"
      ),
      marks=pytest.mark.slow,
    ),
    *(
      pytest.param(name, dict(exemplars=chosen), marks=pytest.mark.slow)
      for name, chosen in [
        ("icarl", "herding"),
        ("lwf", "random"),
        ("e2e", "herding"),
        ("joint", "herding"),
      ]
    ),
  ],
)
def test_streamed_phases_give_the_bits_of_resident_ones(
  monkeypatch, method, options
):
  """Two steps at a time: an epoch of the first phase has two, or one."""
  config, stream = _setup(method, **options)
  monkeypatch.setattr(feed, "BYTES", 16 * 8 * 8 * 3)
  resident = _run(dataclasses.replace(config, stream="never"), stream)
  streamed = _run(
    dataclasses.replace(config, stream="always"), map(_stored, stream)
  )
  assert _numbers(streamed) == _numbers(resident)


@dataclasses.dataclass(frozen=True, eq=False)
class _Noted(Resident):
  """Notes which rows are read, as tests see them and as training does."""

  seen: dict = dataclasses.field(
    default_factory=lambda: {"test": [], "train": []}
  )

  def read(self, rows, draws=None):
    self.seen["test" if draws is None else "train"].append(np.array(rows))
    return super().read(rows, draws)

  def times(self, kind):
    """How often each row was read."""
    rows = np.concatenate(self.seen[kind])
    return np.bincount(rows, minlength=len(self.images))


def _without_training(monkeypatch):
  """What `fit` would draw from, and how it would be augmented."""
  calls = []

  def stay(key, variables, feed, task, stage):
    calls.append((feed, task.augment))
    return variables

  monkeypatch.setattr(train.sgd, "fit", stay)
  return calls


def test_every_model_reads_every_image_once(monkeypatch):
  """The old one to imprint new rows, the new one to choose exemplars."""
  _without_training(monkeypatch)
  config, stream = _setup("lucir", stream="always")
  state, _ = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  images, test = _Noted(stream[1].images), _Noted(stream[1].test_images)
  phase.run_phase(state, _read_from(stream[1], images, test), config)
  looks, kept = images.times("test"), state.memory.counts.max()
  assert looks.min() == 2 and looks.sum() == 2 * len(looks) + kept
  np.testing.assert_array_equal(test.times("test"), 1)
  assert not images.seen["train"] and not test.seen["train"]


def test_views_that_vary_are_not_augmented_again(monkeypatch):
  """Old exemplars are among them; the fine-tune knows the memory alone."""
  config, stream = _setup("lwf", finetune="all", augment=CropFlip(1))
  calls = _without_training(monkeypatch)
  _run(config, [_stored(part, varies=True) for part in stream])
  kinds = [(type(feed).__name__, type(a).__name__) for feed, a in calls]
  assert kinds == [
    ("Streamed", "NoAugmentation"), ("Pool", "CropFlip"),
  ] * 2  # fmt: skip
  assert len(calls[2][0].images) == 6 + 12


def test_a_chunk_is_validated_by_the_images_of_its_classes(monkeypatch):
  """And by the old exemplars of these, for which nothing else is read."""
  config, stream = _setup(
    "lwf",
    exemplars="mnemonics",
    bilevel=dataclasses.replace(tiny.RECIPE, scope="all"),
    exemplar_chunk=1,
    stream="always",
  )
  data, store = stream[0], _Noted(stream[0].images)
  first = phase.Phase(
    phase.begin_run(0, config), _read_from(data, store, store), config
  )
  strategy, valids = exemplars.strategy(config), []
  watch = lambda _, __, valid, **___: valids.append(valid)
  monkeypatch.setattr(bilevel, "prepare", watch)
  monkeypatch.setattr(bilevel, "run_steps", lambda *_: iter(()))
  chosen = strategy.choose(first, first.state.variables)
  store.seen["test"].clear()
  strategy.learn(first, first.state.variables, chosen)
  for label, valid in enumerate(valids):
    own = np.flatnonzero(data.labels == label)
    real = np.asarray(valid.mask)
    np.testing.assert_array_equal(valid.images[real], data.images[own])
    assert set(np.asarray(valid.labels)[real].tolist()) == {label}
    # Nothing is read before a device wants it.
    np.testing.assert_array_equal(store.seen["test"][label], own)
  assert len(valids) == len(store.seen["test"]) == 2
