"""Events: what they are, and that they need no JAX."""

import subprocess
import sys
import typing

from mnemonics_jax import progress


def test_every_event_can_be_ignored_and_told_apart():
  kinds = typing.get_args(progress.Event)
  defined = [
    value
    for value in vars(progress).values()
    if isinstance(value, type) and value.__module__ == progress.__name__
  ]
  assert set(kinds) == set(defined)  # None is forgotten in the union.
  for kind in kinds:
    event = kind(*range(len(kind._fields)))
    assert progress.ignore(event) is None
    assert isinstance(event, kind)


def test_metrics_come_only_with_a_complete_epoch():
  where = progress.StepReport(1, "train", epoch=0, epochs=2, step=3, steps=4)
  assert where.metrics is None


def test_whoever_listens_needs_no_jax():
  code = "import sys, mnemonics_jax.progress; print('jax' in sys.modules)"
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True
  )
  assert done.stdout.strip() == "False", done.stderr
