"""How the package is put together: its versions, and names imported on first use."""

from collections.abc import Callable, Mapping
import importlib
from typing import Any

__version__ = "0.1.0"

NUMERICS = 2
"""Version of the numbers: equal settings, data and seed give equal results.

Runs and base models are found by it. Raise it with every change that moves results by
more than rounding; `tests/version_test.py` fails until you do.

`tests/golden_numbers.json` has the numbers of each version.
"""


def attach(
  package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
  """A package's `__getattr__` and `__dir__`, which import a name on first use.

  Commands that only read data or a report need not wait for JAX. A run does not wait
  for matplotlib before it has something to draw.

  Args:
    package: its `__name__`.
    homes: for each public name the module, within mnemonics_jax, that defines it.
      A name that is the last part of its module stands for the module itself.
  """

  def getter(name: str) -> Any:
    if name not in homes:
      raise AttributeError(f"module {package!r} has no attribute {name!r}")
    module = importlib.import_module(f"mnemonics_jax.{homes[name]}")
    is_module = homes[name].rpartition(".")[2] == name
    return module if is_module else getattr(module, name)

  return getter, lambda: sorted(homes)
