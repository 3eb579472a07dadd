"""A classifier that learns new classes call by call.

`Learner` holds the settings. `Learner.learn` returns everything learned so far as a
new, immutable `Known`.

>>> from mnemonics_jax import Learner, data, networks
>>> digits = data.load("digits")
>>> images, names = digits.train_images[:400], digits.train_labels[:400]
>>> small = networks.resnet8(width=4, image_shape=(8, 8, 3))
>>> learner = Learner(small, memory="per_class:5", preset="smoke")
>>> known = learner.learn(None, images[names < 3], names[names < 3])
>>> known = learner.learn(known, images[names == 3], names[names == 3])
>>> known.names
(0, 1, 2, 3)
>>> learner.predict(known, digits.test_images).shape
(355,)
>>> scores = learner.evaluate(known, *known.exemplars, readout="nme")
>>> scores.confusion.sum(1).tolist()
[5, 5, 5, 5]
>>> learner.save(known, "learner")
>>> learner, known = Learner.load("learner")
"""

from mnemonics_jax.learner.known import Known, Scores
from mnemonics_jax.learner.learner import Learner

__all__ = ["Known", "Learner", "Scores"]
