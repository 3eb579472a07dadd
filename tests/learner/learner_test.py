"""A learner is told of new classes, call by call."""

import dataclasses
import inspect

import jax
import numpy as np
import pytest
from support import compilations, saved_learner, tiny
from support.learners import PHASES, Flat, learn, make, same
from support.saved_learner import QUICK, images, pictures

from mnemonics_jax import (
  Learner,
  UserError,
  memory,
  methods,
  phase,
  registry,
  runs,
)
from mnemonics_jax.identity import identity
from mnemonics_jax.learner.known import resized
from mnemonics_jax.methods import LwF
from mnemonics_jax.phase import Schedule
from mnemonics_jax.progress import ignore
from mnemonics_jax.settings import resolve
from mnemonics_jax.settings.build import build


def test_names_and_order_of_arguments_are_fixed():
  asked = ["self", "known", "images"]
  expected = {
    "learn": [*asked, "names"],
    "predict": asked,
    "predict_proba": asked,
    "features": asked,
    "evaluate": [*asked, "names"],
    "save": ["self", "known", "path"],
    "load": ["path"],
  }
  for name, arguments in expected.items():
    parameters = inspect.signature(getattr(Learner, name)).parameters.values()
    positional = [p.name for p in parameters if p.kind != p.KEYWORD_ONLY]
    assert positional == arguments
  fields = [field.name for field in dataclasses.fields(Learner)]
  first = ["network", "method", "exemplars", "memory", "preset"]
  assert fields[:5] == first
  readouts = [
    inspect.signature(getattr(Learner, name)).parameters["readout"]
    for name in ("predict", "predict_proba", "evaluate")
  ]
  assert all(p.kind == p.KEYWORD_ONLY for p in readouts)


def test_a_preset_may_say_what_is_kept():
  learner = Learner(Flat(), preset="best", **QUICK)
  kept = learn(learner, None, "cat dog").state.memory
  assert kept.codec == memory.Jpeg(90) and kept.counts[:2].tolist() == [4, 4]


@pytest.mark.parametrize("budget", ["per_class_bytes:1000", "total_bytes:4000"])
def test_classes_of_large_codes_do_not_cost_old_ones_what_fits(budget):
  """How many images there is room for was measured on those that come."""
  learner = make(memory=budget, codec="jpeg:90", exemplars="herding")
  smooth = np.full((60, 8, 8, 3), 128, np.uint8)
  smooth += np.arange(60, dtype=np.uint8)[:, None, None, None]
  noisy = np.random.default_rng(0).integers(0, 256, smooth.shape, np.uint8)
  known = learner.learn(None, smooth, ["a"] * 30 + ["b"] * 30)
  assert known.state.memory.counts[:2].tolist() == [30, 30]
  known = learner.learn(known, noisy[:30], ["c"] * 30)
  assert known.state.memory.counts[:2].tolist() == [30, 30]
  assert 0 < known.state.memory.counts[2] < 30


def test_a_memory_of_bytes_keeps_what_fits_and_survives_files(tmp_path):
  learner = make(memory="per_class_bytes:450", codec="jpeg:50")
  known = learn(learner, None, "cat dog")
  kept = known.state.memory
  assert kept.codec == memory.Jpeg(50) and kept.counts[:2].min() >= 1
  assert max(kept.of_class(label).sizes.sum() for label in (0, 1)) <= 450
  learner.save(known, tmp_path / "saved")
  runs.export(learner, known, tmp_path / "exported")
  for place in ("saved", "exported"):
    again, found = Learner.load(tmp_path / place, network=Flat())
    assert again == learner and found.state.memory == kept
  files = list((tmp_path / "exported").rglob("*.jpg"))
  assert len(files) == kept.counts.sum()
  # Another codec takes over what there is.
  plain = dataclasses.replace(learner, memory="per_class:9", codec="raw")
  more = learn(plain, found, "fox")
  np.testing.assert_array_equal(
    more.state.memory.images[: len(kept.images)], kept.images
  )


def test_classes_come_in_the_order_of_their_first_images(learned):
  _, known = learned
  assert known.names == tuple(" ".join(PHASES).split())
  assert known.phases == (3, 2, 1, 3)
  assert known.state.phase == 4 and known.state.classes_seen == 9
  kept, names = known.exemplars
  assert names == tuple(name for name in known.names for _ in range(2))
  for name in known.names:  # Chosen among the images of their own class.
    shown = pictures(**{name: 4})[0]
    for image in kept[[n == name for n in names]]:
      assert (shown == image).all((1, 2, 3)).any()


def test_learning_leaves_what_was_known_before_as_it_was():
  learner = make()
  known = learn(learner, None, "cat dog")
  before = jax.tree.map(np.array, known.state.variables)
  kept = known.state.memory.images.copy()
  learn(learner, known, "fox")
  assert same(before, known.state.variables)
  assert np.array_equal(kept, known.state.memory.images)
  assert known.names == ("cat", "dog")


def with_room(learner, known, room):
  """The same state in a head that has had rows for so many classes from the start."""
  labels = np.arange(len(known.names))
  config = learner._config(known.network, known.phases, labels, None)
  shape = config.shape._replace(classes=room)
  begin = phase.begin_run(0, dataclasses.replace(config, shape=shape))
  return known._replace(state=resized(known.state, begin))


@pytest.mark.parametrize(
  "options",
  [
    pytest.param(
      dict(exemplars="mnemonics", adjust=True, finetune="head"),
      marks=pytest.mark.slow,
    ),
    dict(method="bic"),
  ],
)
def test_growing_equals_having_had_the_room_to_the_bit(options):
  learner, known, roomy = make(**options), None, None
  for phases, (new, rows) in enumerate([(5, 8), (7, 16), (8, 32), (16, 64)]):
    names = " ".join(f"{phases}_{label}" for label in range(new))
    known = learn(learner, known, names, each=3)
    roomy = learn(learner, roomy, names, each=3)
    assert known.state.memory.counts.shape == (rows,)
    assert same(known.state.variables, roomy.state.variables)
    assert known.state.memory == roomy.state.memory
    roomy = with_room(learner, roomy, 100)
    assert roomy.state.variables["params"]["head"]["weight"].shape[0] == 100


def test_a_head_has_the_rows_that_a_longer_one_begins_with():
  learner = make(method="bic")
  known = learn(learner, None, "cat dog")
  labels = np.array([0, 1])
  config = learner._config(known.network, (2,), labels, None)
  short = known._replace(state=phase.begin_run(0, config))
  long = with_room(learner, short, 32)
  shape = config.shape._replace(classes=32)
  begin = phase.begin_run(0, dataclasses.replace(config, shape=shape))
  assert same(long.state.variables, begin.variables)
  assert same(long.state.memory, begin.memory)


def test_images_may_come_in_any_order():
  shown, names = pictures(cat=4, dog=4)
  mixed = [0, 4, 1, 5, 2, 6, 3, 7]
  known = make().learn(None, shown, names, report=ignore)
  other = make().learn(
    None, shown[mixed], [names[i] for i in mixed], report=ignore
  )
  assert same(known.state.variables, other.state.variables)


def test_seeds_differ():
  one, other = (learn(make(seed=seed), None, "cat dog") for seed in (0, 1))
  assert not same(one.state.variables, other.state.variables)


NAMES = (3, "3", (1, "a"), None, frozenset({2}), 2.5)


def test_names_are_anything_hashable():
  learner = make()
  shown = np.concatenate([images(4, seed) for seed in range(6)])
  names = [name for name in NAMES for _ in range(4)]
  known = learner.learn(None, shown, names, report=ignore)
  assert known.names == NAMES
  scores = learner.evaluate(known, shown, names)
  assert list(scores.by_class) == list(NAMES)
  predicted = learner.predict(known, shown)
  assert predicted.dtype == object and set(predicted) <= set(NAMES)


def test_names_of_arrays_are_plain_values():
  learner = make()
  shown, _ = pictures(cat=4, dog=4)
  known = learner.learn(
    None, shown, np.repeat(np.int32([7, 9]), 4), report=ignore
  )
  assert known.names == (7, 9) and type(known.names[0]) is int
  assert learner.predict(known, shown).dtype.kind == "i"
  known = learner.learn(known, images(4, 5), np.array(["x"] * 4), report=ignore)
  assert known.names == (7, 9, "x") and type(known.names[2]) is str


def test_many_small_phases_share_programs():
  learner = make()
  known = learn(learner, None, "a b")
  letters = iter("cdefghijklmnopqrstuvwxyz")
  programs = []
  for _ in range(22):
    with compilations.counted() as count:
      known = learn(learner, known, next(letters))
    programs.append(count.programs)
  assert len(known.names) == 24
  # Sizes are rounded: to 24 classes the pool has 8, 12, 16, 24, 32, 48 or 64
  # rows and the head 8, 16 or 32; in between nothing is compiled.
  assert programs.count(0) >= 10
  assert programs[-6:].count(0) >= 5


def test_what_a_phase_measured_is_in_its_result():
  learner = make()
  test = images(3, 50), ["dog", "cat", "dog"]
  known = learn(learner, None, "cat dog", test=test)
  assert known.result is not None
  for readout in registry.READOUTS:
    counts = known.result.confusion["final"][readout]
    assert counts.sum(1).tolist() == [1, 2]
    scores = learner.evaluate(known, *test, readout=readout)
    assert np.array_equal(scores.confusion, counts)
  without = learn(learner, None, "cat dog")
  assert without.result is None
  assert same(known.state.variables, without.state.variables)


def test_progress_is_shown_by_default(capsys):
  make().learn(None, *pictures(cat=4, dog=4))
  out, err = capsys.readouterr()
  assert not out and "phase 0 · train · epoch 1/1" in err


def everything(method, exemplars, network, **options):
  learner = make(network, method=method, exemplars=exemplars, **options)
  known = learn(learner, None, "cat dog")
  known = learn(learner, known, "fox", test=pictures(cat=2, fox=2))
  known = learn(learner, known, "owl hen ant bee cow pig")  # Outgrows the head.
  likely = learner.predict_proba(known, pictures(cat=2, hen=2)[0])
  assert likely.shape == (4, 9) and np.isfinite(likely).all()
  assert len(known.exemplars[0]) == 18


INCREMENTAL = [name for name in methods.METHODS if name != "joint"]
SOME = [("lucir", "mnemonics"), ("bic", "herding"), ("icarl_bce", "random")]


@pytest.mark.parametrize(("method", "exemplars"), SOME)
def test_methods_and_exemplars(method, exemplars):
  everything(method, exemplars, Flat(), adjust=exemplars == "mnemonics")


@pytest.mark.slow
@pytest.mark.parametrize("exemplars", registry.EXEMPLARS)
@pytest.mark.parametrize("method", INCREMENTAL)
@pytest.mark.parametrize("transfer", ["none", "in_out"])
def test_all_methods_and_exemplars(method, exemplars, transfer):
  network = saved_learner.network()
  options = dict(adjust=True, finetune="all", transfer=transfer)
  everything(method, exemplars, network, **options)


def test_a_total_budget_shrinks():
  learner = make(memory="total:6")
  known = learn(learner, None, "cat dog")
  assert known.state.memory.counts[:2].tolist() == [3, 3]
  known = learn(learner, known, "fox owl hen")
  assert known.state.memory.counts[:5].tolist() == [1] * 5


EIGHT = "cat dog owl fox bee ant cow pig"


@pytest.mark.parametrize("form", [dict(drift=1), dict(imitate=True)])
def test_a_full_head_gets_room_for_an_imitated_phase(form):
  """Which trains on more than the phase itself: on what that keeps, too."""
  learner = make(exemplars="mnemonics", **form)
  known = learn(learner, None, EIGHT, each=3)
  assert len(known.state.memory.counts) == 16
  known = learn(learner, known, "hen")  # As before, but for the imitation.
  assert known.state.memory.counts.tolist() == [2] * 9 + [0] * 7


def test_old_classes_may_have_more_to_adjust_than_new_ones_keep():
  learner = make(memory="total:12", adjust=True, exemplar_chunk=1)
  known = learn(learner, None, "cat dog", each=6)
  known = learn(learner, known, "owl fox bee", each=6)
  assert known.state.memory.counts[:5].tolist() == [2] * 5


# Settings and presets are those of commands.

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)


def config(**settings):
  """What a learner would do with three new classes."""
  learner = Learner("resnet8", **settings)
  network = learner._network(IMAGES)
  return learner._config(network, (3,), np.repeat(np.arange(3), 2), None)


@pytest.mark.parametrize("preset", registry.PRESETS)
def test_a_learner_does_what_the_command_of_the_same_preset_does(preset):
  """With rates and epochs for CIFAR-100, and exemplars drawn once an epoch."""
  same_memory = {"memory": "per_class:20"}
  given = {"net": "resnet8", "rehearsal": "once", "phases": 3, **same_memory}
  run = resolve("cifar100", preset, given)
  theirs, _ = build(run, tiny.dataset(classes=6, train=60))
  ours = config(preset=preset, **same_memory)
  same = {
    field.name: getattr(ours, field.name) == getattr(theirs, field.name)
    for field in dataclasses.fields(ours)
  }
  for name in ("memory", "shape", "network"):  # They depend on the images.
    same.pop(name)
  relu = lambda config: config.network.module.last_relu
  assert relu(ours) == relu(theirs)
  assert all(same.values()), same
  assert identity(ours.base) == identity(theirs.base)


def test_single_settings_are_keywords():
  ours = config(epochs=3, learning_rate=0.2, less_forget=7.0, max_change=4)
  assert (ours.train.epochs, ours.train.learning_rate) == (3, 0.2)
  assert ours.base.learning_rate == 0.2
  assert ours.method.less_forget_base == 7.0
  assert ours.bilevel.max_change == 4


def test_a_setting_beside_a_value_that_has_its_own_is_refused():
  with pytest.raises(UserError, match="`epochs` has no effect with a value"):
    Learner(epochs=3, train=Schedule(2))
  Learner(batch_size=16, train=Schedule(2))  # It is that of phase 0, too.
  with pytest.raises(UserError, match="`distill` has no effect with a value"):
    Learner(distill=False, method=LwF())


def test_a_preset_keeps_as_many_raw_images_of_every_size():
  learner = Learner(preset="best")
  assert learner._policy((32, 32, 3))[0].bytes == 61440
  assert learner._policy((64, 64, 3))[0].bytes == 245760
  assert learner._policy((28, 20, 1))[0].bytes == 20 * 28 * 20
