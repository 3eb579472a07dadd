"""A learner is told of new classes, call by call, and asked about images."""

import dataclasses
import inspect

from flax import linen
import jax
import numpy as np
import pytest
from support import compilations, saved_learner
from support.saved_learner import QUICK, images, pictures

from mnemonics_jax import Learner, UserError, methods, phase, registry
from mnemonics_jax.learner import inputs
from mnemonics_jax.learner.known import grown
from mnemonics_jax.nn.augment import NoAugmentation
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.progress import StepReport, ignore

# A module that compiles in no time; most tests are not about the network.


class Flat(linen.Module):
  width: int = 8

  @linen.compact
  def __call__(self, images, train):
    del train
    return linen.Dense(self.width)(images.reshape(len(images), -1) - 0.5)


def make(network=Flat(), **options):
  fields = dict(QUICK, exemplars="herding", memory="per_class:2", room=4)
  return Learner(network, **(fields | options))


def learn(learner, known, names, each=4, **options):
  shown = pictures(**dict.fromkeys(names.split(), each))
  return learner.learn(known, *shown, report=ignore, **options)


PHASES = ("cat dog owl", "fox bee", "ant", "cow pig hen")


def many(**options):
  learner, known = make(**options), None
  for names in PHASES:
    known = learn(learner, known, names)
  return learner, known


@pytest.fixture(scope="module")
def learned():
  """Nine classes in four phases; before the last one the head grows."""
  return many(room=8)


def same(one, other):
  equal = jax.tree.map(lambda a, b: np.array_equal(a, b), one, other)
  return jax.tree.all(equal)


# Names and arguments.


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


def test_a_learner_has_every_setting_of_a_phase():
  settings = {field.name for field in dataclasses.fields(phase.Config)}
  assert settings - {f.name for f in dataclasses.fields(Learner)} == {"shape"}


@pytest.mark.parametrize("preset", ["paper", "short", "smoke"])
def test_presets_are_fields_of_a_configuration(preset):
  config = Learner("resnet8", preset=preset)._config(
    saved_learner.network(), (2,), np.array([0, 1]), None
  )
  assert config.exemplars == "mnemonics" and config.memory.images == 20
  assert (config.transfer == "in_out") == (preset == "paper")
  own = Learner("resnet8", preset=preset, finetune="none", train=QUICK["train"])
  config = own._config(saved_learner.network(), (2,), np.array([0, 1]), None)
  assert config.finetune == "none" and config.train == QUICK["train"]


# What is learned.


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
  memory = known.state.memory.images.copy()
  learn(learner, known, "fox")
  assert same(before, known.state.variables)
  assert np.array_equal(memory, known.state.memory.images)
  assert known.names == ("cat", "dog")


def test_growing_equals_having_had_the_room(learned):
  """To the bit, for a sum over 8 classes is one over 16 in the same order."""
  _, known = learned
  _, other = many(room=16)
  head, longer = (k.state.variables["params"]["head"] for k in (known, other))
  assert head["weight"].shape == longer["weight"].shape == (16, 8)
  assert same(known.state.variables, other.state.variables)
  assert same(known.state.memory, other.state.memory)
  smaller = make(room=4)
  assert learn(smaller, None, "cat dog").state.memory.counts.shape == (4,)


def test_a_grown_head_has_the_rows_that_a_longer_one_begins_with():
  fields = dict(phases=(2,), labels=np.array([0, 1]), state=None)
  network = saved_learner.network()
  short, long = (
    phase.begin_run(0, make(method="bic", room=room)._config(network, **fields))
    for room in (4, 32)
  )
  for state in (short, long):
    assert state.memory.counts.tolist() == [0] * len(state.memory.counts)
  larger = grown(short, long)
  assert same(larger.variables, long.variables)
  assert same(larger.memory, long.memory)
  head = short.variables["params"]["head"] | {"bias": np.arange(4.0)}
  params = short.variables["params"] | {"head": head}
  changed = short._replace(variables=short.variables | {"params": params})
  bias = grown(changed, long).variables["params"]["head"]["bias"]
  assert bias.tolist() == [0, 1, 2, 3] + [0] * 28


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
  # rows and the head 4, 8, 16 or 32; in between nothing is compiled.
  assert programs.count(0) >= 10
  assert programs[-6:].count(0) >= 5


def test_asking_about_any_number_of_images_is_one_program(learned):
  learner, known = learned
  shown = images(9, 0)
  learner.predict_proba(known, shown, readout="nme")
  with compilations.counted() as count:
    for n in range(1, 9):
      learner.predict_proba(known, shown[:n], readout="nme")
      learner.predict_proba(known, shown[:n], readout="head")
  assert count.programs == 0


# Tests are optional.


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


def test_progress_is_heard():
  heard = []
  make().learn(None, *pictures(cat=4, dog=4), report=heard.append)
  stages = {event.stage for event in heard if isinstance(event, StepReport)}
  assert {"train", "finetune"} <= stages


def test_progress_is_shown_by_default(capsys):
  make().learn(None, *pictures(cat=4, dog=4))
  out, err = capsys.readouterr()
  assert not out and "phase 0 · train · epoch 1/1" in err


# Asking.


def softmax(x):
  x = np.exp(x - x.max(-1, keepdims=True))
  return x / x.sum(-1, keepdims=True)


def features_by_hand(known, shown):
  dense = known.state.variables["params"]["backbone"]["Dense_0"]
  x = shown.reshape(len(shown), -1) / 255 - 0.5
  return x @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"])


def normal(x):
  return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_read_outs_by_hand(learned):
  learner, known = learned
  shown, _ = pictures(cat=3, hen=3, bee=3)
  features = features_by_hand(known, shown)
  np.testing.assert_allclose(
    learner.features(known, shown), features, rtol=1e-3, atol=1e-4
  )
  head = known.state.variables["params"]["head"]
  cosines = normal(features) @ normal(np.asarray(head["weight"])[:9]).T
  likely = softmax(float(head["sigma"]) * cosines)
  np.testing.assert_allclose(
    learner.predict_proba(known, shown), likely, atol=1e-4
  )
  named = [known.names[i] for i in likely.argmax(-1)]
  assert learner.predict(known, shown).tolist() == named

  kept, names = known.exemplars
  own = normal(features_by_hand(known, kept))
  of = lambda name: own[[n == name for n in names]].mean(0)
  means = normal(np.stack([of(name) for name in known.names]))
  cosines = normal(features) @ means.T
  np.testing.assert_allclose(
    learner.predict_proba(known, shown, readout="nme"),
    softmax(10 * cosines),
    atol=1e-4,
  )
  named = [known.names[i] for i in cosines.argmax(-1)]
  assert learner.predict(known, shown, readout="nme").tolist() == named


def test_close_scores_are_not_rounded_away():
  """Of two nearly certain classes the one with the higher logit is named."""
  learner = make(method=methods.LwF())
  known = learn(learner, None, "cat dog")
  head = {
    "weight": np.zeros((4, 8), np.float32),
    "bias": np.array([8.0, 8.0 + 1e-6, 0, 0], np.float32),
  }
  params = known.state.variables["params"] | {"head": head}
  state = known.state._replace(
    variables=known.state.variables | {"params": params}
  )
  shown = images(2, 3)
  named = learner.predict(known._replace(state=state), shown, readout="head")
  assert named.tolist() == ["dog", "dog"]


def test_grades_by_hand(learned):
  learner, known = learned
  shown, names = pictures(cat=3, hen=3)
  guesses = learner.predict(known, shown)
  scores = learner.evaluate(known, shown, names)
  hits = [g == n for g, n in zip(guesses, names, strict=True)]
  assert scores.accuracy == pytest.approx(np.mean(hits))
  assert scores.by_class == pytest.approx(
    {"cat": np.mean(hits[:3]), "hen": np.mean(hits[3:])}
  )
  assert scores.confusion.sum() == 6 and scores.confusion.shape == (9, 9)
  assert scores.confusion[8].sum() == 3  # Hens came last.


def test_methods_have_their_own_read_out():
  learner = make(method="icarl")
  known = learn(learner, None, "cat dog")
  shown = images(5, 1)
  own = learner.predict_proba(known, shown)
  nme = learner.predict_proba(known, shown, readout="nme")
  assert np.array_equal(own, nme)


# Every method, every kind of exemplars, any network.


def everything(method, exemplars, network, **options):
  learner = make(network, method=method, exemplars=exemplars, **options)
  known = learn(learner, None, "cat dog")
  known = learn(learner, known, "fox", test=pictures(cat=2, fox=2))
  known = learn(learner, known, "owl hen")  # Outgrows the head.
  likely = learner.predict_proba(known, pictures(cat=2, hen=2)[0])
  assert likely.shape == (4, 5) and np.isfinite(likely).all()
  assert len(known.exemplars[0]) == 10


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


class Classifier(linen.Module):
  """Has batch statistics, features and, when called, logits."""

  def setup(self):
    self.dense, self.norm = linen.Dense(5), linen.BatchNorm(momentum=0.9)
    self.head = linen.Dense(100)

  def features(self, images, train):
    x = self.dense(images.reshape(len(images), -1))
    return self.norm(x, use_running_average=not train)

  def __call__(self, images, train):
    return self.head(self.features(images, train))


@pytest.mark.parametrize("shape", [(6, 10, 3), (5, 5)])
def test_modules_with_features_and_images_of_any_size(shape):
  learner = make(Classifier(), augment=NoAugmentation())
  shown = np.concatenate([images(4, i, shape) for i in range(3)])
  names = ["cat"] * 4 + ["dog"] * 4 + ["fox"] * 4
  known = learner.learn(None, shown[:8], names[:8], report=ignore)
  known = learner.learn(known, shown[8:], names[8:], report=ignore)
  assert learner.features(known, shown).shape == (12, 5)
  assert known.exemplars[0].shape[1:] == (*shape, 1)[: 3 + (len(shape) < 3)]
  assert len(known.network.image_shape) == 3


def test_grey_images_are_normalised_by_their_own_mean():
  shown = np.concatenate([images(4, i, (8, 8, 1)) for i in range(2)])
  network = inputs.network_for("resnet8", shown)
  module = network.module
  assert network.image_shape == (8, 8, 1)
  assert module.mean == pytest.approx([shown.mean() / 255], abs=1e-3)
  assert module.std == pytest.approx([shown.std() / 255], abs=1e-3)


@dataclasses.dataclass(frozen=True)
class Alike:
  """Not a `Network`, but used as one."""

  image_shape: tuple[int, int, int] = (8, 8, 3)

  @property
  def feature_dim(self):
    return 8

  def init(self, key):
    return Network(Flat(), self.image_shape).init(key)

  def features(self, variables, images, train=False):
    network = Network(Flat(), self.image_shape)
    return network.features(variables, images, train)


def test_what_is_used_as_a_network_is(unchecked):
  known = learn(make(Alike()), None, "cat dog")
  assert same(
    known.state.variables, learn(make(), None, "cat dog").state.variables
  )


# Mistakes.


def refused(*parts):
  """A sentence with these parts."""
  return pytest.raises(UserError, match=".*".join(parts) + r".*\.$")


def test_a_class_is_learned_once(learned):
  learner, known = learned
  with refused("'fox' was learned before", "new classes only"):
    learn(learner, known, "elk fox")
  with refused("'cat', 'dog' were learned before"):
    learn(learner, known, "cat dog")


def test_names_that_cannot_be_used():
  learner, shown = make(), images(4, 0)
  with refused("4 images and 3 names"):
    learner.learn(None, shown, "abc")
  with refused(r"\['a'\] cannot name a class"):
    learner.learn(None, shown, [["a"], "b", "b", "b"])
  with refused("nan cannot name a class"):
    learner.learn(None, shown, np.array([0, 0, 1, np.nan]))
  with refused("fewer than two classes"):
    learner.learn(None, shown, ["cat"] * 4)
  with refused("there are no images"):
    learner.learn(None, shown[:0], [])


def test_images_that_cannot_be_used(learned):
  learner, known = learned
  with refused("images are float64", "uint8"):
    learner.predict(known, np.zeros((2, 8, 8, 3)))
  with refused("images are 9×8×3", "8×8×3"):
    learner.predict(known, images(2, 0, (9, 8, 3)))
  with refused("differ in size"):
    learner.predict(known, [np.zeros((8, 8, 3)), np.zeros((9, 8, 3))])
  with refused("images are 8×8×1", "8×8×3"):
    learner.learn(known, images(2, 0, (8, 8)), ["elk"] * 2)
  with refused("images are 9×8×3", "8×8×3"):
    make(saved_learner.network()).learn(None, images(2, 0, (9, 8, 3)), "ab")


def test_questions_that_cannot_be_answered(learned):
  learner, known = learned
  with refused("'elk' was not learned", "'cat', 'dog'"):
    learner.evaluate(known, images(2, 0), ["cat", "elk"])
  with refused("there are no images"):
    learner.evaluate(known, images(0, 0), [])
  with refused("'elk' was not learned"):
    learn(learner, None, "a b", test=(images(1, 0), ["elk"]))
  with refused("`readout=tail` is not known", "head, nme"):
    learner.predict(known, images(2, 0), readout="tail")
  with refused("`method=lwf` has another head"):
    make(method="lwf").predict(known, images(2, 0))
  with refused("`method=bic` has another head"):
    learn(make(method="bic"), known, "elk")


@pytest.mark.parametrize(
  ("field", "value", "part"),
  [
    ("network", "resnet9", "choose one of resnet8"),
    ("method", "lucyr", "lucir"),
    ("exemplars", "best", "herding"),
    ("memory", "twenty", "per_class:N"),
    ("preset", "long", "paper, short, smoke"),
    ("augment", "flop", "crop_flip"),
    ("finetune", "tail", "none, head, all"),
    ("transfer", "up", "in_out"),
    ("init_exemplars", "best", "random"),
    ("room", 0, "1 or more"),
  ],
)
def test_settings_that_cannot_be_used(field, value, part):
  with refused(f"`(memory|{field})={value}`", part) as caught:
    Learner(**{field: value})
  assert caught.value.field == field


def test_the_upper_bound_cannot_learn_call_by_call():
  with refused("`method=joint` needs the images of all classes"):
    learn(make(method="joint"), None, "cat dog")


def test_a_budget_below_the_number_of_classes_is_refused():
  with refused("`memory=total:2` is smaller"):
    learn(make(memory="total:2"), None, "cat dog owl")
