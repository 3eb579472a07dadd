"""What every base method promises, on a tiny network that learns two phases more.

A method is tested as soon as it has an entry in `registry.METHODS`.
"""

import dataclasses
import functools
import json
from typing import Any, NamedTuple

from flax import linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import compilations, journals, tiny

from mnemonics_jax import methods, phase, registry
from mnemonics_jax.identity import identity, restore
from mnemonics_jax.nn.networks import Network

SPLIT = (2, 2, 2)
LONG = phase.Schedule(20, 0.05, (15,), batch_size=16)
SHORT = phase.Schedule(2, 0.05, (), batch_size=16)
every_method = pytest.mark.parametrize("name", [*registry.METHODS])


class Flat(linen.Module):
  """One layer of features."""

  @linen.compact
  def __call__(self, images, train):
    return linen.Dense(12)(images.reshape(len(images), -1) - 0.5)


class _Spy:
  """Images that note which rows are asked for."""

  def __init__(self, images):
    self._images, self.asked = images, []

  def __getitem__(self, rows):
    self.asked.append(rows)
    return self._images[rows]


class Ran(NamedTuple):
  """A run of three phases.

  Attributes:
    config: of the run.
    stream: its data.
    states: at the beginning and after each phase.
    results: of each phase.
    asked: the classes whose images each phase has read.
    programs: compiled in each phase.
  """

  config: phase.Config
  stream: Any
  states: list[Any]
  results: list[Any]
  asked: list[set[int]]
  programs: list[int]


@functools.cache
def ran(name: str) -> Ran:
  """Runs a method once, for all tests."""
  method, data = methods.METHODS[name](), tiny.dataset()
  config, stream = tiny.setup(
    method, split=SPLIT, data=data, exemplars="herding", train=LONG
  )
  network = Network(Flat(), data.image_shape)
  config = dataclasses.replace(config, network=network)
  object.__setattr__(data, "train_images", _Spy(data.train_images))
  states, results = [phase.begin_run(0, config)], []
  asked, programs = [], []
  for part in stream:
    with compilations.counted() as count:
      state, result = phase.run_phase(states[-1], part, config)
    states.append(state)
    results.append(result)
    programs.append(count.programs)
    rows = np.concatenate(data.train_images.asked)
    asked.append(set(data.train_labels[rows].tolist()))
    data.train_images.asked.clear()
  return Ran(config, stream, states, results, asked, programs)


@every_method
def test_its_entry_says_what_it_is(name):
  entry, method = registry.METHODS[name], methods.METHODS[name]
  assert (method.name, method.readout) == (name, entry.readout)
  assert entry.readout in registry.READOUTS
  labels = [other.label for other in registry.METHODS.values()]
  assert entry.help and labels.count(entry.label) == 1


@every_method
def test_it_can_be_written_down(name):
  """Compiled programs are shared, and runs named, by what a method is."""
  make = methods.METHODS[name]
  for method in (make(), make(distill=False), make().reference()):
    assert method == dataclasses.replace(method)
    assert hash(method) == hash(dataclasses.replace(method))
    written = json.loads(json.dumps(identity(method)))
    assert written["class"].endswith(f".{make.__qualname__}")
    if make.__module__.startswith("mnemonics_jax."):
      assert restore(written) == method
  assert isinstance(make().reference(), make)


@every_method
def test_its_loss_reads_seen_classes_alone(name):
  """And without a teacher it is right to name the truth."""
  method, unseen = methods.METHODS[name](), ~tiny.CLASSES.seen

  def loss(logits, teacher):
    student = tiny.STUDENT._replace(logits=logits, cosines=logits / 10)
    return method.loss(student, teacher, tiny.LABELS, tiny.CLASSES)[0]

  for teacher in (None, tiny.TEACHER):
    gradient = jax.grad(loss)(tiny.STUDENT.logits, teacher)
    assert jnp.isfinite(gradient).all()
    assert not gradient[:, unseen].any()
  gradient = jax.grad(loss)(tiny.STUDENT.logits, None)
  assert gradient[0, tiny.LABELS[0]] < 0


@every_method
def test_it_learns(name):
  """Phase 0 is read out by the head: features of no training have means, too."""
  first, *later = [result.confusion["final"] for result in ran(name).results]
  share = lambda counts: counts.trace() / counts.sum()
  assert share(first["head"]) > 0.9
  for counts in later:
    own = counts[methods.METHODS[name].readout]
    # So few steps forget; but chance is less, and new classes are told apart.
    assert share(own) > 1.5 / len(own) and share(own[-2:, -2:]) > 0.6


@every_method
def test_each_phase_is_measured_and_remembered(name):
  """Six test images of every class, each counted once; three exemplars."""
  for seen, result in zip((2, 4, 6), ran(name).results, strict=True):
    assert result.classes_seen == seen
    for by_readout in result.confusion.values():
      assert by_readout.keys() == registry.READOUTS.keys()
      for counts in by_readout.values():
        assert counts.shape == (seen, seen)
        assert counts.sum(1).tolist() == [6] * seen
  last = ran(name).states[-1]
  assert (last.phase, last.classes_seen) == (3, 6)
  assert last.memory.counts.tolist() == [3] * 6


@every_method
def test_the_images_of_old_classes_are_not_read(name):
  """But by the upper bound."""
  if name == "joint":
    assert ran(name).asked == [{0, 1}, {0, 1, 2, 3}, {0, 1, 2, 3, 4, 5}]
  else:
    assert ran(name).asked == [{0, 1}, {2, 3}, {4, 5}]


@every_method
def test_rows_that_are_held_stay_to_the_bit(name):
  """Of the head: those of classes to come, and those that the method holds."""
  run = ran(name)
  before, after = (state.variables for state in run.states[1:3])
  old, new, _ = np.repeat(np.eye(3, dtype=bool), 2, axis=1)
  classes = methods.Classes(jnp.asarray(old), jnp.asarray(new))
  held = ~np.asarray(run.config.method.trainable_rows(classes))
  assert held[4:].all() and not held[2:4].any()
  for key, rows in before["params"]["head"].items():
    if np.ndim(rows):
      now = after["params"]["head"][key]
      np.testing.assert_array_equal(now[held], rows[held], err_msg=key)
      assert (now[2:4] != rows[2:4]).any()


@every_method
def test_the_third_phase_compiles_nothing(name):
  programs = ran(name).programs
  assert programs[2:] == [0], programs


@every_method
def test_a_phase_continues_to_the_bit(name):
  """From every moment; with a balanced fine-tune, where a method has its own."""
  run = ran(name)
  config = dataclasses.replace(
    run.config, train=SHORT, finetune=registry.METHODS[name].finetune
  )
  state, data = run.states[1], run.stream[1]
  whole = phase.run_phase(state, data, config)
  again, journal = journals.in_pieces(
    lambda journal: phase.run_phase(state, data, config, journal=journal)
  )
  assert "train" in journal.offers
  for one, other in zip(whole, again, strict=True):
    one, other = (
      x._replace(key=None) if hasattr(x, "key") else x for x in (one, other)
    )
    jax.tree.map(np.testing.assert_array_equal, one, other)
