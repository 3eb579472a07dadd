"""Learners that know a few classes in no time."""

from flax import linen
import jax
import numpy as np

from mnemonics_jax import Learner
from mnemonics_jax.progress import ignore
from support.saved_learner import QUICK, pictures

# A module that compiles in no time; most tests are not about the network.


class Flat(linen.Module):
  """Images as they are through one layer."""

  width: int = 8

  @linen.compact
  def __call__(self, images, train):
    del train
    return linen.Dense(self.width)(images.reshape(len(images), -1) - 0.5)


def make(network=Flat(), **options):
  """A learner of few steps; options are its fields."""
  fields = dict(QUICK, exemplars="herding", memory="per_class:2")
  return Learner(network, **(fields | options))


def learn(learner, known, names, each=4, **options):
  """Learns the classes of these names, which stand in one text."""
  shown = pictures(**dict.fromkeys(names.split(), each))
  return learner.learn(known, *shown, report=ignore, **options)


PHASES = ("cat dog owl", "fox bee", "ant", "cow pig hen")


def many(**options):
  """A learner, and what it knows after all phases."""
  learner, known = make(**options), None
  for names in PHASES:
    known = learn(learner, known, names)
  return learner, known


def same(one, other):
  """Whether two trees are equal to the bit."""
  equal = jax.tree.map(lambda a, b: np.array_equal(a, b), one, other)
  return jax.tree.all(equal)
