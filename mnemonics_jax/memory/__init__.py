"""The exemplar memory: a budget, codecs, and a store of coded images.

>>> import numpy as np
>>> from mnemonics_jax import memory
>>> store = memory.empty(classes=3, image_shape=(8, 8, 3), codec=memory.Jpeg(75))
>>> store = memory.insert(store, 0, np.full((2, 8, 8, 3), 255, np.uint8))
>>> images, labels = memory.flat(store)
>>> images.shape, labels
((2, 8, 8, 3), array([0, 0], dtype=int32))
>>> store.codes.sizes.tolist()  # Bytes of each image.
[5, 5]
"""

from mnemonics_jax.memory.codecs import (
  CODECS,
  Codec,
  Codes,
  Jpeg,
  Raw,
  WebP,
  parse_codec,
  round_trip,
)
from mnemonics_jax.memory.policy import (
  MemoryPolicy,
  PerClass,
  PerClassBytes,
  Total,
  TotalBytes,
  certain,
  check,
  fit,
  kept,
  parse,
  slots,
)
from mnemonics_jax.memory.store import (
  Memory,
  discard,
  empty,
  flat,
  insert,
  replace,
  size_bytes,
  staying,
  store,
)

__all__ = [
  "CODECS",
  "Codec",
  "Codes",
  "Jpeg",
  "Memory",
  "MemoryPolicy",
  "PerClass",
  "PerClassBytes",
  "Raw",
  "Total",
  "TotalBytes",
  "WebP",
  "certain",
  "check",
  "discard",
  "empty",
  "fit",
  "flat",
  "insert",
  "kept",
  "parse",
  "parse_codec",
  "replace",
  "round_trip",
  "size_bytes",
  "slots",
  "staying",
  "store",
]
