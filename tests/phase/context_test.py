"""What every stage of a phase is given: masks, keys, reports and a journal."""

import itertools

import jax
import numpy as np
import pytest
from support import tiny

from mnemonics_jax import methods, phase
from mnemonics_jax.phase import Journal, Stage
from mnemonics_jax.phase.context import Keys
from mnemonics_jax.progress import StepReport


def _phases(method):
  config, stream = tiny.setup(method)
  state = phase.begin_run(0, config)
  for number, data in enumerate(stream):
    seen = sum(stream.classes_per_phase[:number])
    state = state._replace(phase=number, classes_seen=seen)
    yield phase.Phase(state, data, config)


def test_masks_name_old_and_new_classes():
  first, second, third = _phases(methods.LwF())
  assert first.classes.old.tolist() == [False] * 6
  assert first.classes.new.tolist() == [True] * 3 + [False] * 3
  assert second.classes.old.tolist() == [True] * 3 + [False] * 3
  assert second.classes.new.tolist() == [False] * 3 + [True] + [False] * 2
  assert third.classes.seen.all()
  for now in (first, second, third):
    assert now.classes.phases.tolist() == [
      [True] * 3 + [False] * 3,
      [False] * 3 + [True] + [False] * 2,
      [False] * 4 + [True] * 2,
    ]
  assert [p.classes_old for p in (first, second, third)] == [0, 3, 4]
  assert [p.classes_seen for p in (first, second, third)] == [3, 4, 6]


def test_only_later_phases_can_forget_and_the_upper_bound_never_does():
  assert [p.incremental for p in _phases(methods.LwF())] == [False, True, True]
  assert not any(p.incremental for p in _phases(methods.Joint()))


def test_every_phase_has_keys_of_its_own():
  first, second, _ = _phases(methods.LwF())
  assert first.keys("train") != second.keys("train")


# Randomness is a function of the seed, the phase and the purpose.

PURPOSES = ("train", "holdout", "select", "exemplars", "adjust", "discard",
            "finetune")  # fmt: skip


def _bits(seed, phase, purpose):
  key = Keys(jax.random.key(seed), phase)(purpose)
  return tuple(jax.random.key_data(key).tolist())


def test_no_two_purposes_phases_or_seeds_share_a_key():
  places = list(itertools.product((0, 1), (0, 1, 2), PURPOSES))
  assert len({_bits(*place) for place in places}) == len(places)


def test_keys_are_the_root_with_phase_and_purpose_folded_in():
  """Written down, because other numbers would come from any other rule."""
  root = jax.random.key(3)
  for number, purpose in enumerate(PURPOSES):
    expected = jax.random.fold_in(jax.random.fold_in(root, 2), number)
    assert Keys(root, 2)(purpose) == expected


def test_the_host_draws_from_the_same_key():
  keys = Keys(jax.random.key(0), 1)
  bits = np.asarray(jax.random.key_data(keys("select")))
  expected = np.random.default_rng(bits).permutation(50)
  np.testing.assert_array_equal(keys.numpy("select").permutation(50), expected)
  assert (keys.numpy("discard").permutation(50) != expected).any()


def test_a_purpose_nobody_knows_is_an_error():
  with pytest.raises(ValueError):
    Keys(jax.random.key(0), 0)("luck")


# A stage tells where it is, and finds its own entries in the journal.


class _Noted(Journal):
  """A journal that writes down who asks for what."""

  def __init__(self, known=None):
    self.calls, self.known = [], known

  def finished(self, entry):
    self.calls.append(("finished", entry))

  def finish(self, entry, value):
    self.calls.append(("finish", entry, value))
    return value

  def resume(self, entry, like):
    self.calls.append(("resume", entry))
    return self.known

  def offer(self, entry, state):
    self.calls.append(("offer", entry, state))


def test_nobody_needs_to_listen():
  stage = Stage().begin()
  stage.tell(0, 3)
  stage.offer({"state": 1})
  like = {"state": 0}
  assert stage.resume(like) is like
  assert stage.finished() is None
  assert stage.finish(7) == 7
  assert not stage.journal.started(stage.entry)


def test_reports_say_where_the_stage_is():
  told = []
  stage = Stage(2, "adjust", told.append).begin()
  stage.tell(1, 4)
  stage.tell(0, 4, 3, 9)
  stage.tell(3, 4, 9, 9, {"loss": 0.5})
  assert told == [
    StepReport(2, "adjust", 0, 1, 0, 1, None),
    StepReport(2, "adjust", 1, 4, 1, 1, None),
    StepReport(2, "adjust", 0, 4, 3, 9, None),
    StepReport(2, "adjust", 3, 4, 9, 9, {"loss": 0.5}),
  ]


def test_parts_of_a_stage_have_entries_of_their_own():
  journal = _Noted(known="earlier")
  whole = Stage(name="exemplars", journal=journal)
  part = whole._replace(part="1")
  assert whole.resume("begin") == "earlier"
  whole.offer("here")
  assert part.finished() is None
  assert part.finish(3) == 3
  assert journal.calls == [
    ("resume", "exemplars"),
    ("offer", "exemplars", "here"),
    ("finished", "exemplars_1"),
    ("finish", "exemplars_1", 3),
  ]


def test_an_entry_is_computed_once():
  class Kept(dict, Journal):
    finished = dict.get
    finish = dict.setdefault

  for journal, again in ((Kept(), 1), (Journal(), 2)):
    assert journal.once("train", lambda: 1) == 1
    assert journal.once("train", lambda: 2) == again
