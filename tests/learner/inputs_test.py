"""What a learner takes: images, names, networks of the user; refusals are a sentence."""

import dataclasses

from flax import linen
import numpy as np
import pytest
from support import saved_learner
from support.learners import Flat, learn, make, same
from support.saved_learner import images

from mnemonics_jax import Learner, UserError
from mnemonics_jax.learner import inputs
from mnemonics_jax.nn.augment import NoAugmentation
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.progress import ignore


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
    ("network", "resnet9", "choose one of resnet18, resnet32, resnet8"),
    ("method", "lucyr", "lucir"),
    ("memory", "twenty", "per_class:N"),
    ("preset", "long", "paper, fast, short, best, smoke"),
    ("augment", "flop", "crop_flip"),
    ("seed", -1, "whole number"),
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


def test_a_base_model_that_is_not_there_is_refused(tmp_path):
  for network in ("resnet8", saved_learner.network()):
    with refused("is not a published model"):
      learner = make(network, base_model=str(tmp_path))
      learn(learner, None, "cat dog")


# The user's own networks, and images of any size.


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
