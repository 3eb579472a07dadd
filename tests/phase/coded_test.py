"""Phases whose memory holds codes: bytes are the budget, codes are what is kept."""

import dataclasses

import numpy as np
import pytest
from support import tiny

from mnemonics_jax import UserError, memory, methods, phase
from mnemonics_jax.memory import selection
from mnemonics_jax.phase import exemplars, train
from mnemonics_jax.phase.evaluate import extract
from mnemonics_jax.phase.level import exemplar_level

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


@pytest.mark.parametrize("made", ["herding", "random"])
def test_as_many_are_kept_as_fit_and_never_coded_again(made):
  config, stream = _setup(exemplars=made)
  states, results = _run(config, stream, **UNTRAINED)
  for state, result in zip(states[1:], results, strict=True):
    kept = state.memory
    for label in range(state.classes_seen):
      codes = kept.of_class(label)
      spare = BUDGET - codes.sizes.sum()
      # One more would not fit, or there is no other.
      assert spare >= 0
      assert spare < codes.sizes.max() + 20 or len(codes.sizes) == 12
      # What is kept are codes of training images of the class.
      own = DATA.train_images[DATA.train_labels == label]
      possible = {bytes(code) for code in JPEG.encode(own).apart()}
      found = {bytes(code) for code in codes.apart()}
      assert found <= possible and len(found) == len(codes.sizes)
    assert result.memory_images == kept.counts.sum()
    shared = len(JPEG.shared((8, 8, 3)))
    assert result.memory_bytes == kept.codes.sizes.sum() + shared
    assert kept.counts.max() <= config.sizes.class_exemplars
  assert (
    len(set(states[-1].memory.counts.tolist())) > 1
  )  # Codes differ in size.


def test_herding_judges_what_is_left_toward_the_mean_of_what_there_was():
  config, stream = _setup(exemplars="herding")
  now = phase.Phase(phase.begin_run(0, config), stream[0], config)
  variables = now.state.variables
  chosen = exemplars.choose(now, variables)
  features = lambda x: extract(config.model, config.method, variables, x)[0]
  unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
  differs = False
  for label in range(3):
    own = now.data.images[now.data.labels == label]
    mean = unit(features(own)).mean(0)
    candidates = unit(features(memory.round_trip(JPEG, own)))
    picks, weight = [], mean.copy()
    for _ in range(len(own)):
      scores = candidates @ weight
      scores[picks] = -np.inf
      picks.append(int(scores.argmax()))
      weight += mean - candidates[picks[-1]]
    sizes = JPEG.encode(own).sizes[picks].cumsum()
    expected = own[picks][: (sizes <= BUDGET).sum()]
    np.testing.assert_array_equal(
      chosen.images[chosen.labels == label], expected
    )
    plain = selection.herding(features(own), len(expected))
    differs |= plain.tolist() != picks[: len(expected)]
  assert differs


def test_a_shrinking_budget_keeps_the_best_of_every_class():
  policy = memory.fit(memory.TotalBytes(2400), JPEG, DATA.train_images[:36])
  config, stream = _setup(policy=policy, exemplars="herding")
  states, results = _run(config, stream, **UNTRAINED)
  for before, after, result in zip(
    states[:-1], states[1:], results, strict=True
  ):
    assert result.memory_bytes <= 2400
    for label in range(before.classes_seen):
      now, then = (s.memory.of_class(label) for s in (after, before))
      np.testing.assert_array_equal(now.data, then.data[: now.data.size])
  assert states[-1].memory.counts[0] < states[1].memory.counts[0]


def test_bytes_of_raw_images_are_a_number_of_them():
  by_number, stream = _setup(policy=memory.PerClass(3), codec=memory.Raw())
  policy = memory.PerClassBytes(3 * 192 + 191)
  policy = memory.fit(policy, memory.Raw(), DATA.train_images)
  by_bytes, _ = _setup(policy=policy, codec=memory.Raw())
  assert by_bytes.sizes == by_number.sizes
  one, other = (_run(c, stream, **UNTRAINED)[0] for c in (by_number, by_bytes))
  assert one[-1].memory == other[-1].memory


def test_learned_exemplars_go_through_the_codec():
  fine = memory.Jpeg(95)  # Coarse steps would round small changes away.
  policy = memory.fit(memory.PerClassBytes(BUDGET), fine, DATA.train_images)
  recipe = dataclasses.replace(tiny.RECIPE, max_change=8, outer_lr=0.01)
  config, stream = _setup(
    policy=policy, codec=fine, exemplars="mnemonics", adjust=True,
    bilevel=recipe,
  )  # fmt: skip
  assert exemplar_level(config).config.stored_fn.quality == 95
  states, results = _run(config, stream, **UNTRAINED)
  for state, result in zip(states[1:], results, strict=True):
    told = result.diagnostics["exemplars"]
    losses = [told[f"loss_{name}"] for name in ("before", "learned", "kept")]
    assert np.isfinite(losses).all() and len(set(losses)) == 3
    _, kept, labels = result.changed["exemplars"]
    for label in np.unique(labels).tolist():
      codes = state.memory.of_class(label)
      assert codes.sizes.sum() <= BUDGET
      decoded = fine.decode(codes, (8, 8, 3))
      shown = {image.tobytes() for image in kept[labels == label]}
      assert {image.tobytes() for image in decoded} <= shown
  assert "loss_kept" not in results[1].diagnostics["adjust"]
  # Old ones have moved, and were coded again.
  old = [states[i].memory.of_class(0).data for i in (1, 2)]
  assert not np.array_equal(*old)


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
