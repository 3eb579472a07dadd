"""Identities: equal for what computes the same, different for all else."""

import dataclasses
import hashlib
import importlib
import json
from pathlib import Path
import subprocess
import sys
from typing import NamedTuple

from flax import linen
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax import identity as identity_lib
from mnemonics_jax import methods
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.identity import digest, identity, restore
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.augment import AUGMENTATIONS, CropFlip
from mnemonics_jax.nn.heads import CosineHead, LinearHead
from mnemonics_jax.nn.model import Model


def _text(value):
  return json.dumps(identity(value), sort_keys=True)


class Pair(NamedTuple):
  left: int
  right: float


class Own(linen.Module):
  features: int = 3

  @linen.compact
  def __call__(self, images, train):
    return linen.Dense(self.features)(images.mean((1, 2)))


@dataclasses.dataclass(frozen=True)
class Cached:
  value: int
  speed: int = dataclasses.field(default=1, metadata={"identity": False})


@dataclasses.dataclass
class Mutable:
  value: int = 0


def test_by_hand():
  here = f"{__name__}."
  assert identity((1, 2.5, "a", True, None)) == [1, 2.5, "a", True, None]
  assert identity(Pair(1, 2.0)) == {
    "class": here + "Pair",
    "fields": {"left": 1, "right": 2.0},
  }
  assert identity(Own(4)) == {"class": here + "Own", "fields": {"features": 4}}
  assert identity((CropFlip(pad=1),)) == [
    {
      "class": "mnemonics_jax.nn.augment.CropFlip",
      "fields": {"pad": 1, "mirror": True},
    }
  ]


def test_fields_that_change_nothing_stay_out():
  assert identity(Cached(1, speed=2)) == identity(Cached(1))
  assert identity(Cached(1)) != identity(Cached(2))
  # They are fields like any other for everything else.
  assert Cached(1, speed=2) != Cached(1)


def test_rematerialised_networks_are_the_same_network():
  plain, remat = networks.resnet8(), networks.resnet8(remat=True)
  assert remat.module.remat and remat != plain
  assert identity(remat) == identity(plain)


def test_configurations_differ_in_every_field():
  network = networks.resnet8(image_shape=(8, 8, 3))
  values = [
    Model(network, CosineHead(), 10),
    Model(network, CosineHead(), 11),
    Model(network, CosineHead(9.0), 10),
    Model(network, LinearHead(), 10),
    Model(networks.resnet8(image_shape=(16, 16, 3)), CosineHead(), 10),
    Model(networks.resnet8(width=8, image_shape=(8, 8, 3)), CosineHead(), 10),
    Model(
      networks.resnet8(image_shape=(8, 8, 3), dtype="bfloat16"),
      CosineHead(),
      10,
    ),
    Model(networks.Network(Own(), (8, 8, 3)), CosineHead(), 10),
    *(method() for method in methods.METHODS.values()),
    *(method(distill=False) for method in methods.METHODS.values()),
    methods.LUCIR(less_forget_base=10.0),
    *AUGMENTATIONS.values(),
    BilevelConfig(),
    BilevelConfig.paper(),
  ]
  texts = [_text(value) for value in values]
  assert len(set(texts)) == len(values)
  assert [_text(value) for value in values] == texts


def test_another_process_finds_the_same():
  code = (
    "import json\nfrom mnemonics_jax.nn import networks\n"
    "from mnemonics_jax.identity import identity\n"
    "print(json.dumps(identity(networks.resnet18()), sort_keys=True))"
  )
  done = subprocess.run(
    [sys.executable, "-c", code],
    cwd=Path(__file__).parents[2],
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout.strip() == _text(networks.resnet18())


@pytest.mark.parametrize(
  "value",
  [
    lambda x: x,
    jnp.zeros(2),
    [1, 2],
    {"a": 1},
    Mutable(),
    (1, (2, object())),
    BilevelConfig(augment=lambda key, images: images),
  ],
)
def test_what_cannot_be_written_down_is_refused(value):
  with pytest.raises(TypeError, match="frozen dataclass"):
    identity(value)


@pytest.mark.parametrize(
  "value",
  [
    (1, 2.5, "a", True, None, ()),
    CropFlip(pad=1),
    Model(networks.resnet8(width=4, image_shape=(8, 8, 3)), CosineHead(9.0), 3),
    networks.resnet18(dtype="bfloat16"),
    *(method(distill=False) for method in methods.METHODS.values()),
    *AUGMENTATIONS.values(),
    BilevelConfig.paper(),
  ],
)
def test_what_was_written_down_comes_back(value):
  assert restore(json.loads(json.dumps(identity(value)))) == value


def test_fields_that_stay_out_come_back_as_their_defaults():
  remat = networks.resnet8(remat=True)
  assert restore(identity(remat)) == networks.resnet8()


@pytest.mark.parametrize(
  "name",
  [
    "os.system",
    "subprocess.Popen",
    f"{__name__}.Own",
    "mnemonics_jaxx.nn.heads.CosineHead",
    "mnemonics_jax.nn.no_such_file.Head",
    "mnemonics_jax.nn.heads.NoSuchHead",
    "mnemonics_jax.identity.importlib",
    "mnemonics_jax.identity.identity",
    "mnemonics_jax.runs.journal.Saver",
    "",
    None,
  ],
)
def test_nothing_else_is_made(name):
  with pytest.raises(LookupError) as caught:
    restore([{"class": name, "fields": {}}])
  assert caught.value.args == (name,)


def test_classes_with_other_fields_are_not_made():
  description = identity(CosineHead())
  description["fields"]["temperature"] = 1.0
  with pytest.raises(LookupError, match="CosineHead"):
    restore(description)


def test_a_class_that_moves_keeps_its_name(monkeypatch):
  now, then = (
    "mnemonics_jax.nn.heads.CosineHead",
    "mnemonics_jax.elsewhere.Head",
  )
  written = identity(CosineHead(sigma=4.0))
  monkeypatch.setitem(identity_lib._MOVED, then, now)
  assert identity(CosineHead(sigma=4.0)) == written | {"class": then}
  assert restore(written | {"class": then}) == CosineHead(sigma=4.0)
  assert restore(written) == CosineHead(sigma=4.0)  # Written in between.


def test_what_has_moved_is_where_the_table_says():
  assert len(set(identity_lib._MOVED.values())) == len(identity_lib._MOVED)
  for then, now in identity_lib._MOVED.items():
    module, _, name = now.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    assert f"{cls.__module__}.{cls.__qualname__}" == now, then


def test_a_digest_is_that_of_the_bytes_one_after_the_other():
  rows = np.arange(6, dtype=np.int16).reshape(2, 3)
  text = json.dumps([{"b": 1, "a": None}, 2.5]).encode()
  of = lambda content: hashlib.sha256(content).hexdigest()
  assert digest([{"b": 1, "a": None}, 2.5]) == of(text)
  assert digest(rows, "x") == of(rows.tobytes() + b'"x"')
  # Columns have the bytes of a copy; a number of an array is one of its bytes.
  assert digest(rows.T) == of(rows.T.tobytes())
  assert digest(np.int64(3)) == of(np.int64(3).tobytes())
  assert digest({"b": 1, "a": 2}, sort_keys=True) == of(b'{"a": 2, "b": 1}')
  assert digest({"b": 1, "a": 2}) != digest({"a": 2, "b": 1})
