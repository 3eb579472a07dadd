"""What is done to a run, drawn from a seed: a run of some kind, and attacks on it."""

import dataclasses
import json
import random
from typing import Any

from mnemonics_jax import registry

METHODS = tuple(registry.METHODS)
EXEMPLARS = tuple(registry.EXEMPLARS)
KINDS = ("kill", "signal", "full disk", "damage", "move", "devices", "stream")
HARMS = ("flip", "truncate", "empty", "delete", "zeros")
_SMALL = (
  "--preset=smoke", "--phases=1", "--images_per_class=12", "--base_epochs=2",
  "--epochs=2", "--batch_size=20", "--memory=per_class:4",
  "--checkpoint_every=0.05",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Run:
  """A kind of run.

  Attributes:
    method: base method.
    exemplars: how they are chosen.
    adjust: whether old ones are adjusted.
    seeds: how many.
    processes: in how many it computes.
    stream: whether images are streamed to the device.
  """

  method: str = "lucir"
  exemplars: str = "mnemonics"
  adjust: bool = False
  seeds: int = 1
  processes: int = 1
  stream: str = "never"

  @property
  def flags(self) -> list[str]:
    """All that decides its numbers."""
    numbers = ",".join(map(str, range(self.seeds)))
    flags = [*_SMALL, f"--method={self.method}", f"--seeds={numbers}"]
    if self.method != "joint":
      flags += [f"--exemplars={self.exemplars}"]
      flags += ["--finetune_epochs=1"] + ["--adjust"] * self.adjust
    if self.exemplars in ("mnemonics", "selected"):
      flags += ["--meta_epochs=1"]
    return flags


@dataclasses.dataclass(frozen=True)
class Attack:
  """Something that happens to a run; what is a share is in [0, 1).

  Attributes:
    kind: one of `KINDS`.
    line: for what ends a run: after so many words of checkpoints; 0 is at once.
    delay: and so many seconds.
    which: which process, signal, file or size, as a share of all.
    how: of damage, one of `HARMS`.
  """

  kind: str
  line: int = 0
  delay: float = 0.0
  which: float = 0.0
  how: str = "flip"


@dataclasses.dataclass(frozen=True)
class Schedule:
  """A run, and what happens to it."""

  run: Run
  attacks: tuple[Attack, ...]

  def without(self, number: int) -> "Schedule":
    """All of it but one attack."""
    rest = self.attacks[:number] + self.attacks[number + 1 :]
    return dataclasses.replace(self, attacks=rest)

  def write(self) -> str:
    """As JSON, on one line, with what is not the default."""
    plain = lambda value: {
      field.name: getattr(value, field.name)
      for field in dataclasses.fields(value)
      if getattr(value, field.name) != field.default
    }
    attacks = [plain(attack) for attack in self.attacks]
    return json.dumps({"run": plain(self.run), "attacks": attacks})


def read(text: str) -> Schedule:
  """What `Schedule.write` has written."""
  value: dict[str, Any] = json.loads(text)
  attacks = tuple(Attack(**attack) for attack in value["attacks"])
  return Schedule(Run(**value["run"]), attacks)


def draw(rng: random.Random) -> Schedule:
  """A schedule at random; a method or a strategy is as likely as any other."""
  method = rng.choice(METHODS)
  run = Run(
    method=method,
    exemplars="herding" if method == "joint" else rng.choice(EXEMPLARS),
    adjust=method != "joint" and rng.random() < 0.4,
    seeds=2 if rng.random() < 0.3 else 1,
    processes=2 if rng.random() < 0.15 else 1,
    stream=rng.choice(["always", "never"]),
  )
  fitting = [k for k in KINDS if run.processes == 1 or k != "devices"]
  attacks = [
    _attack(rng, rng.choice(fitting)) for _ in range(rng.randint(1, 5))
  ]
  return Schedule(run, tuple(attacks))


def _attack(rng, kind):
  return Attack(
    kind,
    line=rng.choice([0, 1, 1, 2, 3, 5, 8]),
    delay=round(rng.choice([rng.uniform(0, 0.4), rng.uniform(0, 4)]), 3),
    which=round(rng.random(), 4),
    how=rng.choice(HARMS),
  )
