"""Phases whose memory holds codes: bytes are the budget, codes are what is kept."""

import dataclasses

import numpy as np
import pytest
from support import tiny

from mnemonics_jax import UserError, memory, methods, phase
from mnemonics_jax.phase import train

JPEG = memory.Jpeg(50)


def _data():
  """Every other class has less contrast, and smaller codes."""
  whole = tiny.dataset()
  contrast = np.where(whole.train_labels % 2, 0.7, 1.0)[:, None, None, None]
  images = 128 + contrast * (whole.train_images.astype(np.float64) - 128)
  return dataclasses.replace(whole, train_images=images.astype(np.uint8))


DATA = _data()
BUDGET = 500
POLICY = memory.fit(memory.PerClassBytes(BUDGET), JPEG, DATA.train_images[:36])
UNTRAINED = dict(train=lambda phase, _: phase.state.variables)


def _setup(method=methods.LUCIR(), policy=POLICY, codec=JPEG, **options):
  return tiny.setup(method, data=DATA, memory=policy, codec=codec, **options)


def _run(config, stream, **options):
  states, results = [phase.begin_run(0, config)], []
  for data in stream:
    state, result = phase.run_phase(states[-1], data, config, **options)
    states.append(state)
    results.append(result)
  return states, results


def test_bytes_of_raw_images_are_a_number_of_them():
  by_number, stream = _setup(policy=memory.PerClass(3), codec=memory.Raw())
  policy = memory.PerClassBytes(3 * 192 + 191)
  policy = memory.fit(policy, memory.Raw(), DATA.train_images)
  by_bytes, _ = _setup(policy=policy, codec=memory.Raw())
  assert by_bytes.sizes == by_number.sizes
  one, other = (_run(c, stream, **UNTRAINED)[0] for c in (by_number, by_bytes))
  assert one[-1].memory == other[-1].memory


def test_bic_never_trains_on_what_it_calibrates_with(monkeypatch):
  monkeypatch.setattr(methods.BiC, "holdout", 0.4)  # So that numbers differ.
  seen = []

  def watched(phase_now, _):
    seen.append(phase_now)
    return phase_now.state.variables

  config, stream = _setup(methods.BiC(), exemplars="random")
  _run(config, stream, train=watched)
  for now in seen:
    trained, _ = train._trained_on(now)
    rows = {image.tobytes() for image in trained}
    if now.incremental:
      held, labels = train._held_out(now)
      assert not rows & {image.tobytes() for image in held}
      counts = np.bincount(labels, minlength=now.classes_seen)
      assert counts.min() >= 1 and counts.max() - counts.min() <= 1


def test_what_cannot_be_learned_through_is_refused():
  with pytest.raises(UserError, match="`codec=webp:75` has no gradient"):
    _setup(codec=memory.WebP(), exemplars="mnemonics")
  _setup(codec=memory.WebP())
  with pytest.raises(UserError, match="is not known"):
    _setup(policy=memory.PerClassBytes(500))
