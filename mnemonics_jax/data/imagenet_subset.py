"""ImageNet-Subset: 100 of ImageNet's classes, in files of their own or among all."""

import functools

from mnemonics_jax.data import imagenet
from mnemonics_jax.data.imagenet_classes import imagenet_subset

load = functools.partial(imagenet.load, world=imagenet_subset)
