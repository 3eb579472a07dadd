"""How many steps go into a call, with a clock that tests can set."""

import pytest

from mnemonics_jax.parallel import prefetch
from mnemonics_jax.parallel.prefetch import Pace


class _Clock:
  """Stands still until somebody lets time pass."""

  def __init__(self):
    self.now = 0.0

  def perf_counter(self):
    return self.now


@pytest.fixture
def clock(monkeypatch):
  clock = _Clock()
  monkeypatch.setattr(prefetch, "time", clock)
  return clock


def _next(current, clock, steps, seconds):
  with current.timing(steps):
    clock.now += seconds
  return current.steps


def test_calls_take_about_a_second(clock):
  current = Pace()
  assert current.steps == 1
  assert _next(current, clock, 1, 0.01) == 100
  assert _next(current, clock, 100, 4.0) == 25
  # An epoch may end early; the rate counts, not what was planned.
  assert _next(current, clock, 10, 0.25) == 40


def test_a_slow_step_is_a_call_of_its_own(clock):
  assert _next(Pace(), clock, 1, 30.0) == 1


def test_an_error_in_a_call_is_not_swallowed(clock):
  with pytest.raises(KeyError), Pace().timing(1):
    raise KeyError
