"""Memory that a command has used stays its own.

XLA on a CPU asks for all buffers of a program in every call and gives them back
after it. glibc returns such large blocks to the system at once, and the next call
pays for every page anew: 78,000 of them for a training step of ResNet-32
(benchmarks/README.md has the seconds). It is a setting of the whole process, so commands make it, not the
library.
"""

import ctypes
import os
import sys

# Of <malloc.h>: no mapping of its own for a large block, no trimming of the heap,
# and one heap for all threads, since only the first can grow as large.
_SETTINGS = {
  "M_MMAP_MAX": (-4, 0),
  "M_TRIM_THRESHOLD": (-1, 2**31 - 1),
  "M_ARENA_MAX": (-8, 1),
}


def keep_freed_memory() -> bool:
  """Lets this process keep what it frees; returns whether it does.

  Other systems than Linux with glibc, and users who have chosen settings of
  malloc themselves, are left alone.
  """
  chosen = any(name.startswith("MALLOC_") for name in os.environ)
  if sys.platform != "linux" or chosen or "GLIBC_TUNABLES" in os.environ:
    return False
  mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none.
  if mallopt is None:
    return False
  return all([mallopt(*setting) == 1 for setting in _SETTINGS.values()])
