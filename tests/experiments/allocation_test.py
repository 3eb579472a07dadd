"""A large block that is freed and asked for again costs no new pages."""

import os
from pathlib import Path
import platform
import subprocess
import sys

import pytest

ROOT = Path(__file__).parents[2]
COUNT = """
import ctypes, resource, sys
from experiments import allocation

if sys.argv[1] == "keep":
  print(allocation.keep_freed_memory())
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.memset.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use():
  block = libc.malloc(1 << 26)
  libc.memset(block, 1, 1 << 26)
  libc.free(block)

use()
before = faults()
use()
print(faults() - before)
"""


def count(how, **environment):
  """What it answers, and pages that the second use of 64 MiB was given."""
  clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
  done = subprocess.run(
    [sys.executable, "-c", COUNT, how],
    env=clean | {"PYTHONPATH": str(ROOT)} | environment,
    capture_output=True,
    text=True,
    check=True,
  )
  *answers, pages = done.stdout.split()
  return answers, int(pages)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
def test_pages_are_kept():
  _, before = count("leave")
  answers, after = count("keep")
  assert answers == ["True"] and after < 100
  huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
  if not (huge.exists() and "[always]" in huge.read_text()):
    assert before > 1000  # Of 16,384.


def test_who_has_chosen_is_left_alone():
  answers, _ = count("keep", MALLOC_ARENA_MAX="2")
  assert answers == ["False"]
  answers, _ = count("keep", GLIBC_TUNABLES="glibc.malloc.arena_max=2")
  assert answers == ["False"]
