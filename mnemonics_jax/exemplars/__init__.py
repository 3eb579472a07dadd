"""How the exemplars of new classes are made: strategies, by name.

A strategy chooses images of the new classes, and may learn their pixels:

    strategy = exemplars.strategy(config)
    chosen = strategy.choose(phase, variables)
    change = strategy.learn(phase, variables, chosen, stage)  # None: images stay

To add one, write a `Strategy` in a file of its own, and add an entry to
`registry.EXEMPLARS`. The tests in `tests/contracts` then run on it.
"""

from mnemonics_jax.exemplars.choose import (
  STRATEGIES,
  Chosen,
  Herding,
  Look,
  Random,
  Selected,
  Strategy,
  strategy,
)
from mnemonics_jax.exemplars.future import Drifted, Imitated, Now
from mnemonics_jax.exemplars.learn import Change, Learned, adjust

__all__ = [
  "STRATEGIES",
  "Change",
  "Chosen",
  "Drifted",
  "Herding",
  "Imitated",
  "Learned",
  "Look",
  "Now",
  "Random",
  "Selected",
  "Strategy",
  "adjust",
  "strategy",
]
