"""Settings: each is declared once, and nothing here waits for JAX.

>>> from mnemonics_jax import settings
>>> run = settings.resolve("digits", "short", {"phases": 2, "method": "lwf"})
>>> run.phases, run.finetune, run.name(checksum=0)
(2, 'head', 'digits_lwf_mnemonics_per_class-5_n2_af95495c')
>>> settings.resolve("digits", "short", {"method": "lwf", "less_forget": 3.0})
Traceback (most recent call last):
mnemonics_jax.errors.UserError: `less_forget` has no effect with `method=lwf`; leave out one of them.
"""

from mnemonics_jax.settings.declare import (
  Declared,
  declared,
  optional,
  redefault,
  setting,
)
from mnemonics_jax.settings.presets import resolve
from mnemonics_jax.settings.settings import (
  Command,
  Computing,
  Phase,
  Recipe,
  Settings,
)

__all__ = [
  "Command",
  "Computing",
  "Declared",
  "Phase",
  "Recipe",
  "Settings",
  "declared",
  "optional",
  "redefault",
  "resolve",
  "setting",
]
