"""What is kept of old classes: a budget, and a grid of images that obeys it.

>>> import numpy as np
>>> from mnemonics_jax import memory
>>> policy = memory.parse("per_class:2")
>>> slots = memory.slots(policy, classes_per_phase=(2, 1), largest_class=500)
>>> store = memory.empty(classes=3, slots=slots, image_shape=(8, 8, 3))
>>> store = memory.insert(store, 0, np.full((2, 8, 8, 3), 255, np.uint8))
>>> images, labels = memory.flat(store)
>>> images.shape, labels
((2, 8, 8, 3), array([0, 0], dtype=int32))
"""

from mnemonics_jax.memory.policy import (
  MemoryPolicy,
  PerClass,
  Total,
  check,
  kept,
  parse,
  slots,
)
from mnemonics_jax.memory.store import (
  discard,
  empty,
  flat,
  insert,
  insert_many,
  replace,
  size_bytes,
  store,
)
from mnemonics_jax.types import Memory

__all__ = [
  "Memory",
  "MemoryPolicy",
  "PerClass",
  "Total",
  "check",
  "discard",
  "empty",
  "flat",
  "insert",
  "insert_many",
  "kept",
  "parse",
  "replace",
  "size_bytes",
  "slots",
  "store",
]
