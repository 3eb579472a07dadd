"""Reading ahead: in order, early enough, no thread left; and steps of a call."""

import contextlib
import threading

import pytest

from mnemonics_jax.parallel import prefetch
from mnemonics_jax.parallel.prefetch import Pace, read_ahead


def _threads():
  return [t for t in threading.enumerate() if t.name.startswith("read_ahead")]


def test_results_come_in_order_and_were_read_before():
  """While one is used, two others are there or under way, and no more."""
  read = []
  results = read_ahead(lambda item: read.append(item) or item, range(6))
  assert next(results) == 0
  _threads()[0].join(timeout=0.2)  # It waits for more to do.
  assert read == [0, 1, 2]
  assert [*results] == [1, 2, 3, 4, 5] and read == [0, 1, 2, 3, 4, 5]
  assert not _threads()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_any_number_of_items(count):
  assert [*read_ahead(str, range(count))] == [*map(str, range(count))]


def test_items_belong_to_the_caller_and_reading_to_a_thread():
  places = set()

  def items():
    for item in range(3):
      places.add(("item", threading.current_thread().name))
      yield item

  def read(_):
    places.add(("read", threading.current_thread().name))

  assert [*read_ahead(read, items())] == [None] * 3
  here = threading.current_thread().name
  assert places == {("item", here), ("read", "read_ahead_0")}


def test_an_error_comes_where_its_result_would_have_come():
  def read(item):
    if item == 2:
      raise OSError("unreadable")
    return item

  results, seen = read_ahead(read, range(9)), []
  with pytest.raises(OSError, match="unreadable"):
    for result in results:
      seen.append(result)
  assert seen == [0, 1] and not _threads()


def test_an_error_among_the_items_ends_the_thread():
  def items():
    yield 1
    raise LookupError

  with pytest.raises(LookupError):
    list(read_ahead(str, items()))
  assert not _threads()


def test_who_stops_early_waits_for_what_is_under_way_only():
  going, read = threading.Event(), []

  def slow(item):
    read.append(item)
    if item:
      going.wait(timeout=10)
    return item

  results = read_ahead(slow, range(100), ahead=5)
  with contextlib.closing(results):
    assert next(results) == 0
    going.set()
  assert not _threads() and len(read) <= 6


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
