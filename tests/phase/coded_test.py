"""Phases whose memory holds codes, and new images that are trained on as codes."""

import dataclasses

import numpy as np
import pytest
from support import tiny

from mnemonics_jax import UserError, memory, methods, phase
from mnemonics_jax.data import images as images_lib
from mnemonics_jax.phase import evaluate, sgd, train
from mnemonics_jax.phase.feed import as_kept

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


IMAGES = tiny.dataset().train_images
ONCE = phase.Schedule(1, 0.02, (), batch_size=16)


def rows(images):
  return {image.tobytes() for image in np.asarray(images)}


def test_stored_images_are_coded_when_they_are_read():
  coded = memory.round_trip(JPEG, IMAGES)
  assert not (coded == IMAGES).all()
  np.testing.assert_array_equal(as_kept(JPEG, IMAGES), coded)
  stored = images_lib.Stored(
    images_lib.Resident(IMAGES, varies=True), np.r_[:9]
  )
  found = as_kept(JPEG, stored)
  assert isinstance(found, images_lib.Stored) and images_lib.varies(found)
  assert images_lib.checksum(found) == images_lib.checksum(stored)
  np.testing.assert_array_equal(np.asarray(found[2:4]), coded[2:4])
  # Random parts of images are coded as what is seen of them.
  seen, sharp = (
    images_lib.training_view(images, np.array([5, 1]), seed=0, epoch=0)
    for images in (found, stored)
  )
  np.testing.assert_array_equal(seen, memory.round_trip(JPEG, sharp))


def test_what_loses_nothing_changes_nothing():
  assert as_kept(memory.Raw(), IMAGES) is IMAGES


def second_phase(method=methods.LUCIR(), **options):
  """A tiny run that stands before its second phase; what it trains on at first."""
  config, stream = tiny.setup(
    method, codec=JPEG, base=ONCE, train=ONCE, **options
  )
  first = phase.Phase(phase.begin_run(0, config), stream[0], config)
  state, _ = phase.run_phase(first.state, first.data, config)
  return first, phase.Phase(state, stream[1], config)


@pytest.mark.parametrize("code_new", [False, True])
def test_new_images_are_trained_on_as_they_would_be_kept(monkeypatch, code_new):
  first, second = second_phase(code_new=code_new)
  assert first.new_images is first.data.images  # Nothing is old.
  sharp, kept = second.data.images, memory.round_trip(JPEG, second.data.images)
  expected = kept if code_new else sharp
  pools, imprinted = [], []
  fit, features = sgd.fit, evaluate.extract_features

  def watch_fit(key, variables, pool, *rest):
    pools.append(pool)
    return fit(key, variables, pool, *rest)

  def watch_features(model, method, variables, images):
    imprinted.append(images)
    return features(model, method, variables, images)

  monkeypatch.setattr(sgd, "fit", watch_fit)
  monkeypatch.setattr(train, "extract_features", watch_features)
  train.train_model(second)
  (pool,) = pools
  old, _ = memory.flat(second.state.memory)
  assert rows(pool.images[: int(pool.count)]) == rows(old) | rows(expected)
  # New rows of the head begin with the same images.
  np.testing.assert_array_equal(np.concatenate(imprinted), expected)


def test_what_bic_holds_out_is_coded_too():
  _, second = second_phase(methods.BiC(), code_new=True)
  images, labels = train._held_out(second)
  new = np.asarray(images)[labels >= second.classes_old]
  assert len(new)
  assert rows(new) <= rows(memory.round_trip(JPEG, second.data.images))


def test_exemplars_are_still_chosen_among_the_images_themselves():
  """They are coded once, not twice."""
  _, second = second_phase(code_new=True)
  state, _ = phase.run_phase(second.state, second.data, second.config)
  kept = state.memory.of_class(3).apart()
  possible = {bytes(code) for code in JPEG.encode(second.data.images).apart()}
  assert {bytes(code) for code in kept} <= possible
