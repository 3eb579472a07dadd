"""What a user holds: a learner that is told of new classes, call by call.

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
"""

from mnemonics_jax.learner.known import Known, Scores
from mnemonics_jax.learner.learner import Learner

__all__ = ["Known", "Learner", "Scores"]
