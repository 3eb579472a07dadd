"""The user's own networks, and images of any size."""

import dataclasses

from flax import linen
import numpy as np
import pytest
from support.learners import Flat, learn, make, same
from support.saved_learner import images

from mnemonics_jax.learner import inputs
from mnemonics_jax.nn.augment import NoAugmentation
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.progress import ignore


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
