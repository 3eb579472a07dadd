"""What a preset says where a learner itself says nothing."""

from collections.abc import Mapping
import math
from typing import Any

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import registry
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.memory import Codec, MemoryPolicy
from mnemonics_jax.phase import Schedule

_KEPT = dict(memory="per_class:20", codec="raw")
_LEARNED = dict(_KEPT, exemplars="mnemonics")
_CHOSEN = dict(_KEPT, exemplars="herding")  # docs/choosing.md tells why.

# results/studies/curves.md tells why it is a cosine.
_COSINE_20 = Schedule(20, milestones=(), curve="cosine")

# As many bytes as 20 raw images take, of whatever size.
_RAW_20 = lambda shape: f"per_class_bytes:{20 * math.prod(shape)}"

# Fields of `phase.Config`; the schedules are those for CIFAR-100. Exemplars are drawn
# once an epoch: another way was not measured where classes come call by call.
PRESETS: Mapping[str, Mapping[str, Any]] = {
  "paper": dict(
    _LEARNED,
    init_exemplars="random",
    validate_on="new",
    adjust=True,
    bilevel=BilevelConfig.paper(),
    transfer="in_out",
    finetune="all",
    base=Schedule(),
    train=Schedule(),
    balance=Schedule(50, 0.01, ()),
  ),
  "fast": dict(
    _CHOSEN,
    finetune="head",
    base=Schedule(40, 0.2, (), curve="one_cycle"),
    train=Schedule(10, 0.05, (), curve="one_cycle"),
    balance=Schedule(10, 0.01, ()),
  ),
  "short": dict(
    _CHOSEN,
    finetune="head",
    base=_COSINE_20,
    train=Schedule(10, milestones=(), curve="cosine"),
    balance=Schedule(10, 0.01, ()),
  ),
  "best": dict(
    exemplars="herding",
    memory=_RAW_20,
    codec="jpeg:90",
    finetune="head",
    base=_COSINE_20,
    train=Schedule(5, milestones=(), curve="cosine"),
    balance=Schedule(2, 0.01, ()),
  ),
  "smoke": dict(
    _LEARNED,
    finetune="head",
    bilevel=BilevelConfig(epochs=1),
    base=Schedule(2, milestones=(1,)),
    train=Schedule(1, milestones=()),
    balance=Schedule(1, 0.01, ()),
  ),
}

# What the paper does with learned exemplars only.
_STAGES = ("adjust", "transfer", "finetune")


def fields(preset: str, exemplars: str | None, method: str) -> dict[str, Any]:
  """The fields of `phase.Config` that a preset decides.

  >>> fields("paper", "herding", "lucir").get("adjust", False)
  False
  >>> fields("short", "herding", "e2e")["finetune"]  # It belongs to the method.
  'all'

  Args:
    preset: its name.
    exemplars: how they are made; None as the preset says.
    method: name of the base method.
  """
  chosen = dict(PRESETS[preset])
  if preset == "paper" and exemplars not in ("mnemonics", None):
    chosen = {name: v for name, v in chosen.items() if name not in _STAGES}
  words = registry.METHODS.get(method)
  if words is not None and words.finetune != "none":
    chosen["finetune"] = words.finetune
  return chosen


def policy(
  preset: str,
  memory: str | MemoryPolicy | None,
  codec: str | Codec | None,
  image_shape: tuple[int, ...],
) -> tuple[MemoryPolicy, Codec]:
  """What may be kept, and how; a preset says it where nobody else does.

  >>> policy("short", None, "jpeg:90", (32, 32, 3))
  (PerClass(images=20), Jpeg(quality=90))
  >>> policy("best", None, None, (64, 64, 3))[0].bytes
  245760

  Args:
    preset: its name.
    memory: a budget, or None.
    codec: a codec, or None.
    image_shape: of what is learned.
  """
  chosen = PRESETS[preset]
  usual = chosen["memory"]
  budget = usual if isinstance(usual, str) else usual(image_shape)
  return (
    memory_lib.parse(budget if memory is None else memory),
    memory_lib.parse_codec(chosen["codec"] if codec is None else codec),
  )
