"""Whether this process computes convolutions natively, and why not.

MNEMONICS_CPU_CONV decides: `native` insists, `xla` leaves them to XLA, and
`auto`, the default, takes native ones where they can be built.
"""

import ctypes
import functools
import os
import threading
from typing import NamedTuple

import jax

from mnemonics_jax import user_cache
from mnemonics_jax.errors import UserError
from mnemonics_jax.nn.native import build

VARIABLE = "MNEMONICS_CPU_CONV"
WISHES = ("auto", "native", "xla")
MAPS = ("conv2d", "conv2d_dx", "conv2d_dw")


class Choice(NamedTuple):
  """How convolutions are computed on a CPU.

  >>> Choice("xla").is_native
  False
  >>> Choice("native-0123456789abcdef").target("conv2d_dw")
  'mnemonics-native-0123456789abcdef-conv2d_dw'

  Attributes:
    name: `xla`, or `native-` and what the library was made from. With equal
      names, equal programs give equal bits.
    note: what a person should know of how it came to this.
  """

  name: str
  note: str | None = None

  @property
  def is_native(self) -> bool:
    """Whether kernels of our own are used."""
    return self.name != "xla"

  def target(self, name: str) -> str:
    """The name under which XLA knows one of the maps.

    It holds the choice's, for compiled programs are kept under such names.
    """
    return f"mnemonics-{self.name}-{name}"


def choose() -> Choice:
  """The choice of this process; the first call may compile for some seconds.

  >>> choose() is choose()
  True

  Raises:
    UserError: the environment wants what cannot be.
  """
  with _LOCK:
    return _choose()


def news() -> str | None:
  """The choice's note, when it is asked for the first time.

  >>> first, second = news(), news()
  >>> second is None
  True
  """
  note = choose().note
  if _SAID.is_set():
    return None
  _SAID.set()
  return note


_LOCK, _SAID = threading.Lock(), threading.Event()


@functools.cache
def _choose():
  wish = os.environ.get(VARIABLE) or WISHES[0]
  if wish not in WISHES:
    raise UserError(
      VARIABLE,
      f"{VARIABLE}={wish} is none of {', '.join(WISHES)}",
      "leave it out for auto",
    )
  if wish == "xla":
    return Choice("xla")
  try:
    return _load()
  except build.BuildError as error:
    if wish == "native":
      raise UserError(
        VARIABLE,
        f"{VARIABLE}=native, but {error}",
        "install g++, or leave the variable out",
      ) from error
    return Choice(
      "xla",
      f"{error}, so convolutions are left to XLA: steps take longer, results"
      " are the same up to rounding.",
    )


def _load():
  path, seconds = build.library(user_cache.default_directory() / "native")
  choice = Choice(path.stem.rpartition("-")[0].replace("conv", "native"))
  try:
    library = ctypes.CDLL(str(path))
  except OSError as error:
    raise build.BuildError(f"{path} cannot be loaded ({error})") from error
  for name in MAPS:
    function = jax.ffi.pycapsule(getattr(library, name))
    jax.ffi.register_ffi_target(choice.target(name), function, platform="cpu")
  if not seconds:
    return choice
  note = (
    f"convolutions were compiled for this machine in {seconds:.0f} s, once."
  )
  return choice._replace(note=note)
