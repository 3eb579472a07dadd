"""The torture itself: it is drawn from its seed, and finds what is broken."""

import random

import pytest
from torture import run as run_lib
from torture import schedules
from torture.schedules import Attack, Run, Schedule
from torture.victim import Failed


def test_a_schedule_is_that_of_its_seed_and_comes_back_from_text():
  drawn = [schedules.draw(random.Random(seed)) for seed in range(200)]
  assert drawn == [schedules.draw(random.Random(seed)) for seed in range(200)]
  for schedule in drawn:
    assert schedules.read(schedule.write()) == schedule
  kinds = {attack.kind for schedule in drawn for attack in schedule.attacks}
  assert kinds == set(schedules.KINDS)
  assert {s.run.method for s in drawn} == set(schedules.METHODS)
  assert {s.run.processes for s in drawn} == {1, 2}


def test_the_smallest_schedule_holds_only_what_it_takes():
  attacks = tuple(Attack("kill", line) for line in range(5))
  needed = {attacks[1], attacks[4]}
  found = run_lib.smallest(
    Schedule(Run(), attacks), lambda s: needed <= set(s.attacks)
  )
  assert found.attacks == (attacks[1], attacks[4])


class _Left:
  """A victim that has left something."""

  exact, harmed, workdir = True, {"seed_0/phase_00.npz"}, None


def test_what_differs_is_found_unless_it_was_damaged(monkeypatch):
  expected = {"results.json": {"a": 1}, "seed_0/phase_00.npz": b"x"}
  monkeypatch.setattr(run_lib, "left", lambda _: expected | changes)
  changes = {"seed_0/phase_00.npz": b"y"}
  run_lib.compare(_Left, expected)
  changes = {"results.json": {"a": 2}}
  with pytest.raises(Failed, match=r"results\.json differs"):
    run_lib.compare(_Left, expected)


@pytest.mark.slow
def test_a_few_minutes_of_torture(capsys):
  assert run_lib.main(["--minutes=4", "--seed=1"]) == 0, capsys.readouterr().out
