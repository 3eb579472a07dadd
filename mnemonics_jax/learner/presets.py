"""What a preset says where a learner itself says nothing."""

from collections.abc import Mapping
from typing import Any

from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.phase import Schedule

# Fields of `phase.Config`; the schedules are those of the command line's presets
# of the same names.
PRESETS: Mapping[str, Mapping[str, Any]] = {
  "paper": dict(
    init_exemplars="random",
    adjust=True,
    bilevel=BilevelConfig.paper(),
    transfer="in_out",
    finetune="all",
    base=Schedule(),
    train=Schedule(),
    balance=Schedule(50, 0.01, ()),
  ),
  "short": dict(
    finetune="head",
    base=Schedule(20, milestones=(10, 15)),
    train=Schedule(10, milestones=(5, 7)),
    balance=Schedule(10, 0.01, ()),
  ),
  "smoke": dict(
    finetune="head",
    bilevel=BilevelConfig(epochs=1),
    base=Schedule(2, milestones=(1,)),
    train=Schedule(1, milestones=()),
    balance=Schedule(1, 0.01, ()),
  ),
}
