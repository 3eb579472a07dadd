"""Settings: their ranges, their identity, and the configuration they become."""

import dataclasses
import json
import math

import numpy as np
import pytest
from support import tiny

from mnemonics_jax import augment, methods
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.errors import UserError
from mnemonics_jax.memory import Jpeg, PerClassBytes, Total, fit
from mnemonics_jax.phase import Schedule
from mnemonics_jax.settings import Settings
from mnemonics_jax.settings.build import build

PLAIN = Settings(
  "tiny", "short", net="resnet8", memory="per_class:2", base_classes=3, phases=3
)


@pytest.mark.parametrize(
  "field, values",
  {
    "epochs": (0, 10**6 + 1),
    "meta_epochs": (0,),
    "batch_size": (0, 2**16 + 1),
    "exemplar_chunk": (0,),
    "adjust_parts": (1,),
    "max_change": (-1, 256),
    "order_seed": (-1, 2**32),
    "seeds": ((), (1, 1), (-1,), (0, 2**32)),
    "learning_rate": (0.0, -1.0, math.inf, math.nan),
    "finetune_learning_rate": (0.0, math.nan),
    "weight_decay": (-1e-9, math.inf, math.nan),
    "less_forget": (-1.0, math.inf, math.nan),
    "images_per_class": (0,),
    "memory": ("20", "per_class:0", "total:x", "per_class_bytes:0"),
    "codec": ("png", "jpeg:0", "webp:101"),
  }.items(),
)
def test_values_out_of_range_are_refused(field, values):
  for value in values:
    with pytest.raises(UserError, match=f"`{field}") as error:
      dataclasses.replace(PLAIN, **{field: value})
    assert error.value.field == field


def test_the_ends_of_ranges_are_accepted():
  dataclasses.replace(
    PLAIN, epochs=1, max_change=0, seeds=(0, 2**32 - 1), less_forget=0.0,
    weight_decay=0.0, images_per_class=1, batch_size=2**16,
  )  # fmt: skip


def test_bytes_and_a_codec_reach_the_phases():
  settings = dataclasses.replace(
    PLAIN, memory="per_class_bytes:500", codec="jpeg:50"
  )
  config, stream = build(settings, tiny.dataset())
  assert config.codec == Jpeg(50)
  assert config.memory == fit(PerClassBytes(500), Jpeg(50), stream[0].images)
  assert settings.title.endswith(" · per_class_bytes:500 jpeg:50")
  assert settings.identity()["codec"] == "jpeg:50"


def test_the_identity_is_what_json_gives_back():
  identity = PLAIN.identity()
  assert json.loads(json.dumps(identity)) == identity
  assert identity["seeds"] == [0] and identity["milestones"] == [0.5, 0.75]


@pytest.mark.parametrize(
  "recipe, asked, found",
  [
    ("tuned", None, "all"),
    ("tuned", "new", "new"),
    ("paper", None, "new"),
    ("paper", "all", "all"),
  ],
)
def test_exemplars_are_validated_as_the_recipe_or_the_user_says(
  recipe, asked, found
):
  settings = dataclasses.replace(PLAIN, recipe=recipe, validate_on=asked)
  assert build(settings, tiny.dataset())[0].validate_on == found
  assert settings.identity()["validate_on"] == found


def test_remat_is_no_part_of_the_identity():
  stored = dataclasses.replace(PLAIN, remat=True)
  assert stored.identity() == PLAIN.identity()


def test_settings_become_the_librarys_configuration():
  settings = dataclasses.replace(
    PLAIN, memory="total:18", epochs=8, base_epochs=20, learning_rate=0.2,
    weight_decay=0.001, batch_size=16, finetune="head", finetune_epochs=3,
    finetune_learning_rate=0.05, augment="crop", adjust=True, exemplar_chunk=2,
    exemplars="mnemonics", max_change=4, meta_epochs=7, less_forget=7.0,
    transfer="out", adjust_parts=3,
  )  # fmt: skip
  config, stream = build(settings, tiny.dataset())
  assert stream.classes_per_phase == (3, 1, 1, 1)
  assert config.shape == stream.shape
  assert config.method == methods.LUCIR(less_forget_base=7.0)
  assert config.memory == Total(18)
  train = Schedule(8, 0.2, (4, 6), batch_size=16, weight_decay=0.001)
  assert config.train == train
  assert config.base == dataclasses.replace(
    train, epochs=20, milestones=(10, 15)
  )
  assert config.balance == dataclasses.replace(
    train, epochs=3, learning_rate=0.05, milestones=()
  )
  assert config.bilevel == BilevelConfig(max_change=4, epochs=7)
  assert config.augment == augment.AUGMENTATIONS["crop"]
  assert (config.adjust, config.exemplar_chunk) == (True, 2)
  assert config.adjust_parts == 3
  assert (config.transfer, config.finetune) == ("out", "head")


def test_phase_0_may_have_a_rate_of_its_own():
  settings = dataclasses.replace(
    PLAIN, learning_rate=0.02, base_learning_rate=0.2
  )
  config, _ = build(settings, tiny.dataset())
  assert (config.base.learning_rate, config.train.learning_rate) == (0.2, 0.02)
  said = dataclasses.replace(PLAIN, base_learning_rate=PLAIN.learning_rate)
  assert said.identity() == PLAIN.identity()


def test_only_the_first_classes_may_be_learned():
  _, whole = build(PLAIN, tiny.dataset())
  settings = dataclasses.replace(PLAIN, classes=5, phases=2)
  _, stream = build(settings, tiny.dataset())
  assert stream.classes_per_phase == (3, 1, 1)
  assert stream.class_names == whole.class_names[:5]


def test_the_reference_code_differs_in_details():
  made = lambda **changes: build(
    dataclasses.replace(PLAIN, **changes), tiny.dataset()
  )[0]
  ours, theirs = made(), made(reference_code=True)
  assert (ours.method.reduction, ours.method.head.sigma) == ("sum", 10.0)
  assert (theirs.method.reduction, theirs.method.head.sigma) == ("mean", 1.0)
  relu = lambda config: config.network.module.last_relu
  assert not relu(ours) and not relu(theirs)
  for name in ("lwf", "icarl", "icarl_bce", "e2e", "bic"):
    assert not relu(made(method=name))
    assert relu(made(method=name, reference_code=True))
  joint = made(method="joint", exemplars="herding", reference_code=True)
  assert not relu(joint)


@pytest.mark.parametrize(
  "epochs, milestones", [(4, (2, 3)), (2, (1,)), (1, ())]
)
def test_short_schedules_have_fewer_milestones(epochs, milestones):
  settings = dataclasses.replace(PLAIN, epochs=epochs, base_epochs=epochs)
  config, _ = build(settings, tiny.dataset())
  assert config.base.milestones == config.train.milestones == milestones


@pytest.mark.parametrize("seed", [1993, 7])
def test_classes_arrive_in_the_order_of_their_seed(seed):
  order = np.arange(6)
  np.random.RandomState(seed).shuffle(order)
  settings = dataclasses.replace(PLAIN, order_seed=seed)
  _, stream = build(settings, tiny.dataset())
  assert stream.class_names == tuple(f"class {label}" for label in order)


def test_recipes_take_single_settings():
  recipe = lambda **changes: (
    build(dataclasses.replace(PLAIN, **changes), tiny.dataset())[0].bilevel
  )
  assert recipe() == BilevelConfig()
  assert recipe(recipe="paper") == BilevelConfig.paper()
  assert recipe(recipe="paper", scope="head") == BilevelConfig.paper(
    scope="head"
  )


def test_the_upper_bound_sees_all_data_again():
  settings = dataclasses.replace(PLAIN, method="joint", exemplars="herding")
  _, stream = build(settings, tiny.dataset())
  assert len(stream[1].labels) == 4 * 12


def test_activations_may_have_half_precision():
  half, _ = build(dataclasses.replace(PLAIN, dtype="bfloat16"), tiny.dataset())
  full, _ = build(PLAIN, tiny.dataset())
  assert half.network != full.network
