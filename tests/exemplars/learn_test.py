"""Learned exemplars: what is optimised, padding, chunks, and the model level within.

`contracts/strategies_test.py` has what all strategies promise, resuming among it.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import compilations, tiny

from mnemonics_jax import bilevel, exemplars, memory, methods, networks, phase
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.exemplars import Chosen, learn
from mnemonics_jax.exemplars.level import Level, exemplar_level
from mnemonics_jax.nn.augment import CropFlip, NoAugmentation
from mnemonics_jax.nn.model import Model
from mnemonics_jax.nn.pixels import JpegLoss
from mnemonics_jax.phase import Stage
from mnemonics_jax.phase.config import Sizes
from mnemonics_jax.phase.evaluate import extract

METHOD = methods.LUCIR()
UNTRAINED = dict(train=lambda phase, _: phase.state.variables)


@pytest.fixture(scope="module")
def first():
  """Phase 0 of a tiny run: classes 0, 1 and 2, with 12 images each."""
  config, stream = tiny.setup(METHOD, exemplars="mnemonics", adjust=True)
  return phase.Phase(phase.begin_run(0, config), stream[0], config)


@pytest.fixture(scope="module")
def second(first):
  """Phase 1, whose memory holds the first images of phase 0."""
  state = first.state
  kept = memory.store(state.memory, *picked(first))
  state = state._replace(memory=kept, phase=1, classes_seen=3)
  _, stream = tiny.setup(METHOD)
  return phase.Phase(state, stream[1], first.config)


def picked(now, per_class=3):
  labels = now.data.labels
  rows = [np.flatnonzero(labels == c)[:per_class] for c in np.unique(labels)]
  return now.data.images[np.concatenate(rows)], labels[np.concatenate(rows)]


def features_of(now, images):
  config, variables = now.config, now.state.variables
  return extract(config.model, config.method, variables, images)[0]


def chosen(now):
  data = now.data
  return Chosen(*picked(now), features_of(now, data.images), data.labels)


def changed(now, **changes):
  config = dataclasses.replace(now.config, **changes)
  return dataclasses.replace(now, config=config)


def sized(now, **sizes):
  """The phase with other shapes; the other keywords change its configuration."""
  options = {name: sizes.pop(name) for name in {*sizes} - {*Sizes._fields}}
  now = changed(now, **options)
  now.config.__dict__["sizes"] = now.config.sizes._replace(**sizes)
  return now


def learned(now, stage=Stage(), **changes):
  now = changed(now, **changes) if changes else now
  strategy = exemplars.strategy(now.config)
  return strategy.learn(now, now.state.variables, chosen(now), stage)


def adjusted(now, stage=Stage(), **changes):
  now = changed(now, **changes) if changes else now
  return exemplars.adjust(now, now.state.variables, stage)


class Steps(phase.Journal):
  """A journal of the meta steps that a loop has taken."""

  def __init__(self):
    self.taken = []

  def offer(self, entry, state):
    states = state.state
    parts = [states] if hasattr(states, "step") else states
    self.taken.append([int(part.step) for part in parts])


def test_learning_is_what_bilevel_does_without_padding(first):
  images, labels = picked(first)
  data = first.data
  expected = bilevel.optimize_exemplars(
    first.keys("exemplars"),
    bilevel.Exemplars(bilevel.from_uint8(images), labels),
    first.state.variables,
    bilevel.Features(features_of(first, data.images), data.labels),
    active=first.classes.seen,
    **exemplar_level(first.config)._asdict(),
  )
  change = learned(first)
  np.testing.assert_array_equal(
    change.after, bilevel.to_uint8(expected.exemplars.images)
  )
  np.testing.assert_array_equal(change.before, images)
  for name, values in expected.history._asdict().items():
    np.testing.assert_allclose(
      getattr(change.history, name), values, rtol=1e-5, err_msg=name
    )
  assert (change.after != change.before).any()
  # What a report shows of it.
  told = change.diagnostics()
  moved = np.abs(change.after.astype(int) - images.astype(int))
  assert told["max_change"] == moved.max() <= 2
  assert told["mean_change"] == pytest.approx(moved.mean())
  assert told["loss"] == change.history.loss.tolist()


@pytest.mark.parametrize("parts", [2, 3])
def test_adjusting_is_what_bilevel_does_with_as_many_parts(second, parts):
  """Epochs are told of all parts."""
  images, labels = memory.flat(second.state.memory)
  expected = bilevel.adjust_exemplars(
    second.keys("adjust"),
    bilevel.Exemplars(bilevel.from_uint8(images), labels),
    second.state.variables,
    active=second.classes.seen,
    parts=parts,
    **exemplar_level(second.config)._asdict(),
  )
  told, now = [], sized(second, old_exemplars=9, adjust_parts=parts)
  change = adjusted(now, Stage(1, "adjust", told.append))
  np.testing.assert_array_equal(
    change.after, bilevel.to_uint8(expected.exemplars.images)
  )
  np.testing.assert_array_equal(change.before, images)
  np.testing.assert_array_equal(change.labels, labels)
  epochs = parts * now.config.bilevel.epochs
  assert len(change.history.loss) == epochs
  assert [(t.epoch, t.epochs) for t in told] == [
    (i, epochs) for i in range(epochs)
  ]


@pytest.mark.parametrize(
  "padding", [dict(new_exemplars=17), dict(later_pool=80)]
)
def test_padding_changes_nothing_but_rounding(second, padding):
  """Augmentation draws by row, so that it would draw otherwise."""
  plain, padded = (
    learned(sized(second, augment_exemplars=False, **sizes))
    for sizes in (dict(new_exemplars=3, later_pool=21), padding)
  )
  np.testing.assert_allclose(plain.history.loss, padded.history.loss, rtol=1e-4)
  moved = np.abs(plain.after.astype(int) - padded.after.astype(int))
  assert moved.max() <= 1 and (moved > 0).mean() < 0.01
  assert padded.after.shape == plain.after.shape


def test_an_epoch_is_a_pass_over_the_data_of_this_phase(second):
  """21 images in batches of 8, however many rows the largest phase needs."""
  recipe = dataclasses.replace(
    tiny.RECIPE, steps_per_epoch=None, batch_size=8, epochs=1
  )
  for rows in (36, 80):
    journal = Steps()
    now = sized(second, later_pool=rows, bilevel=recipe)
    learned(now, Stage(journal=journal))
    assert journal.taken[-1] == [3]


def test_an_epoch_of_an_adjustment_is_a_pass_over_the_other_parts(second):
  """Nine exemplars in thirds: six others in batches of four, not of 30 rows."""
  recipe = dataclasses.replace(
    tiny.RECIPE, steps_per_epoch=None, batch_size=4, epochs=1
  )
  journal = Steps()
  now = sized(second, old_exemplars=30, adjust_parts=3, bilevel=recipe)
  adjusted(now, Stage(journal=journal))
  assert journal.taken[-1] == [2, 2, 2]


def test_classes_are_split_in_order():
  labels = np.array([4, 4, 1, 7, 9, 9])
  split = lambda size: [
    group.tolist() for group in learn.split_classes(labels, size)
  ]
  assert split(2) == [[1, 4], [7, 9]]
  assert split(3) == [[1, 4, 7], [9]]
  assert split(None) == split(4) == split(9) == [[1, 4, 7, 9]]


def test_a_chunk_is_learned_from_its_own_classes(first):
  """Each class alone is what learning the exemplars of one class gives."""
  told = []
  change = learned(first, Stage(report=told.append), exemplar_chunk=1)
  assert [(t.epoch, t.epochs) for t in told] == [(i, 6) for i in range(6)]
  found, losses = chosen(first), []
  for number in range(3):
    own, data = found.labels == number, found.input_labels == number
    images, labels = found.images[own], found.labels[own]
    expected = bilevel.optimize_exemplars(
      jax.random.fold_in(first.keys("exemplars"), number),
      bilevel.Exemplars(bilevel.from_uint8(images), labels),
      first.state.variables,
      bilevel.Features(found.inputs[data], found.input_labels[data]),
      active=first.classes.seen,
      **exemplar_level(first.config)._asdict(),
    )
    np.testing.assert_array_equal(
      change.after[own], bilevel.to_uint8(expected.exemplars.images)
    )
    losses.append(expected.history.loss)
  np.testing.assert_allclose(
    change.history.loss, np.mean(losses, axis=0), rtol=1e-5
  )
  np.testing.assert_allclose(
    [t.metrics["loss"] for t in told], np.concatenate(losses), rtol=1e-5
  )


def test_chunks_of_other_sizes_share_their_shapes(first):
  """Two classes, then one: the second chunk is padded to the first."""
  learned(first, exemplar_chunk=3)
  with compilations.counted() as count:
    whole = learned(first, exemplar_chunk=5)
  assert count.programs == 0  # All in one chunk, as before.
  change = learned(first, exemplar_chunk=2)
  moved = (change.after != change.before).reshape(3, -1).any(1)
  assert moved.all() and change.after.shape == whole.after.shape


@pytest.mark.parametrize(
  "scope, validate_on",
  [
    ("head", "all"),
    pytest.param("all", "all", marks=pytest.mark.slow),
    ("head", "new"),
  ],
)
def test_new_exemplars_are_validated_by_new_data_and_old_exemplars(
  second, monkeypatch, scope, validate_on
):
  recipe = dataclasses.replace(tiny.RECIPE, scope=scope)
  now = changed(second, bilevel=recipe, validate_on=validate_on)
  strategy, variables = exemplars.strategy(now.config), now.state.variables
  prepare, problems = bilevel.prepare, []

  def watched(*args, **options):
    problems.append(prepare(*args, **options))
    return problems[-1]

  monkeypatch.setattr(bilevel, "prepare", watched)
  strategy.learn(now, variables, strategy.choose(now, variables))
  (problem,) = problems
  # Shapes are those of all later phases: 24 new and 12 old images at most.
  assert len(problem.valid.labels) == now.config.sizes.later_pool == 36
  rows = 21 if validate_on == "all" else 12
  assert problem.valid.mask.tolist() == [True] * rows + [False] * (36 - rows)
  labels = [3] * 12 + sorted([0, 1, 2] * 3)
  assert problem.valid.labels[:rows].tolist() == labels[:rows]
  assert problem.exemplars.mask.tolist() == [True] * 3 + [False] * 3
  old, _ = memory.flat(now.state.memory)
  expected = np.concatenate([now.data.images, old])
  if scope == "head":
    expected = features_of(now, expected)
  np.testing.assert_allclose(
    problem.valid[0][:rows], expected[:rows], rtol=1e-5
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  "name, scope", [("bic", "transfer"), ("lucir", "all"), ("lwf", "head")]
)
def test_learned_exemplars_move_within_the_trust_region(name, scope):
  recipe = dataclasses.replace(tiny.RECIPE, scope=scope, max_change=2)
  method = methods.METHODS[name]()
  plain, stream = tiny.setup(method)
  config = dataclasses.replace(
    plain, exemplars="mnemonics", adjust=True, bilevel=recipe
  )
  distance = lambda a, b: np.abs(a.astype(int) - b.astype(int))
  # One phase: the same images, moved by at most two grey levels.
  before, _ = phase.run_phase(phase.begin_run(0, plain), stream[0], plain)
  after, result = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  change = distance(before.memory.images, after.memory.images)
  assert change.any() and change.max() <= 2
  assert result.diagnostics["exemplars"]["max_change"] == change.max()
  # The next phase also moves the old ones, again by at most two.
  later, result = phase.run_phase(after, stream[1], config)
  moved = distance(later.memory.images[:9], after.memory.images)
  assert moved.any() and moved.max() <= 2
  assert result.diagnostics["adjust"]["max_change"] == moved.max()
  np.testing.assert_array_equal(later.memory.counts, [3, 3, 3, 3, 0, 0])


def test_learned_exemplars_go_through_the_codec():
  fine, data = memory.Jpeg(95), tiny.dataset()
  recipe = dataclasses.replace(tiny.RECIPE, max_change=8, outer_lr=0.01)
  config, stream = tiny.setup(
    METHOD, codec=fine, exemplars="mnemonics", adjust=True, bilevel=recipe,
    memory=memory.fit(memory.PerClassBytes(500), fine, data.train_images),
  )  # fmt: skip
  assert exemplar_level(config).config.stored_fn == JpegLoss(95)
  states, results = [phase.begin_run(0, config)], []
  for part in (stream[0], stream[1]):
    state, result = phase.run_phase(states[-1], part, config, **UNTRAINED)
    states.append(state)
    results.append(result)
    told = result.diagnostics["exemplars"]
    losses = [told[f"loss_{name}"] for name in ("before", "learned", "kept")]
    assert np.isfinite(losses).all() and len(set(losses)) == 3
    _, kept, labels = result.changed["exemplars"]
    for label in np.unique(labels).tolist():
      decoded = fine.decode(state.memory.of_class(label), (8, 8, 3))
      shown = {image.tobytes() for image in kept[labels == label]}
      assert {image.tobytes() for image in decoded} <= shown
  assert "loss_kept" not in results[1].diagnostics["adjust"]
  # Old ones have moved, and were coded again.
  old = [states[i].memory.of_class(0).data for i in (1, 2)]
  assert not np.array_equal(*old)


# The model and the method as functions that are unrolled.

IMAGES = jnp.linspace(0, 1, 6 * 8 * 8 * 3).reshape(6, 8, 8, 3)


def model_of(method):
  network = networks.resnet8(width=4, image_shape=(8, 8, 3))
  return Model(network, method.head, 3)


def level_of(method=methods.BiC(), augment=NoAugmentation(), **recipe):
  recipe = BilevelConfig(epochs=1, steps_per_epoch=1, inner_steps=1, **recipe)
  return Level.of(recipe, model_of(method), method, augment)


def test_equal_descriptions_are_equal_and_hash_equal():
  one, two = level_of(), level_of(methods.BiC())
  assert one == two and hash(one) == hash(two)
  for other in (level_of(methods.LwF()), level_of(augment=CropFlip()),
                level_of(inner_lr=0.5)):  # fmt: skip
    assert other != one


@pytest.mark.parametrize("scope", ["head", "all"])
def test_equal_descriptions_run_the_same_program(scope):
  given = bilevel.Exemplars(IMAGES, jnp.arange(6) % 3)
  data = IMAGES[::-1], jnp.arange(6) % 3
  variables = model_of(methods.LwF()).init(jax.random.key(0))
  run = lambda: bilevel.optimize_exemplars(
    jax.random.key(0), given, variables, data,
    **level_of(methods.LwF(), scope=scope)._asdict(),
  )  # fmt: skip
  run()
  with compilations.counted() as count:
    run()
  assert count.programs == 0


def test_logits_are_those_of_the_method():
  """BiC corrects the logits of new classes; exemplars learn through that."""
  method = methods.BiC()
  model, level = model_of(method), level_of(method)
  variables = method.begin_run(model.init(jax.random.key(0)))
  outputs, _ = model.apply(variables, IMAGES)
  expected = method.logits(variables, outputs)
  np.testing.assert_allclose(
    level.apply_fn(variables, IMAGES), expected, rtol=1e-5
  )
  features = level.config.features_fn(variables, IMAGES)
  np.testing.assert_allclose(features, outputs.features, rtol=1e-5)


def test_the_inner_head_is_a_cosine_head_whose_scale_stays():
  head = {"weight": jnp.array([[3.0, 4.0], [0.0, 2.0]])}
  features = jnp.array([[6.0, 8.0]])
  logits = level_of().config.head_fn
  # cos((6, 8), (3, 4)) = 1 and cos((6, 8), (0, 2)) = 0.8, times σ.
  np.testing.assert_allclose(logits(head, features), [[10.0, 8.0]], rtol=1e-5)
  scaled = head | {"sigma": jnp.float32(2.0)}
  np.testing.assert_allclose(logits(scaled, features), [[2.0, 1.6]], rtol=1e-5)
  slope = jax.grad(lambda h: logits(h, features).sum())(scaled)
  assert slope["sigma"] == 0 and np.abs(slope["weight"]).max() > 0


def test_the_base_level_of_transfer_starts_at_the_identity():
  model = model_of(methods.LwF())
  level = level_of(methods.LwF(), scope="transfer")
  variables = model.init(jax.random.key(0))
  start = level.start(variables)
  assert set(start) - set(variables) == {"transfer"}
  np.testing.assert_allclose(
    level.apply_fn(start, IMAGES), level.apply_fn(variables, IMAGES), rtol=1e-5
  )
  assert level_of(scope="head").start(variables) is variables


def test_settings_name_a_start_and_a_future():
  made = lambda **options: exemplars.strategy(
    tiny.setup(METHOD, exemplars="mnemonics", **options)[0]
  )
  herding, now = exemplars.Herding(), exemplars.Now()
  assert made() == exemplars.Learned(herding, now)
  assert made(init_exemplars="random").start == exemplars.Random()
  assert made(drift=2).future == exemplars.Drifted(2)
  assert made(imitate=True).future == exemplars.Imitated()
