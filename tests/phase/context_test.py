"""What the stages of a phase see of it."""

from support import tiny

from mnemonics_jax import methods, phase


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
