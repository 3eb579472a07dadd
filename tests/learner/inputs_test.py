"""What cannot be learned or asked is told in a sentence."""

import numpy as np
import pytest
from support import saved_learner
from support.learners import learn, make
from support.saved_learner import images

from mnemonics_jax import Learner, UserError


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
