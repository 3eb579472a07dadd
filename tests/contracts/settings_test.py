"""What every setting promises: flag, help, checks, effect, identity, keyword, docs.

The tests read the declarations, so that a new setting is tested as soon as it is
declared. `names.json` holds names of directories that commit de09587 gave.
"""

import dataclasses
import inspect
import json
from pathlib import Path
import re
import shutil
import subprocess
import sys
import typing

from absl.flags import FlagValues
import numpy as np
import pytest
from support import tables, tiny

from experiments import flags
from mnemonics_jax import Learner, augment, data, methods, registry
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.errors import UserError
from mnemonics_jax.memory import Jpeg, PerClassBytes, Total, fit
from mnemonics_jax.phase import Config, Schedule
from mnemonics_jax.settings import (
  Command,
  Phase,
  Recipe,
  Settings,
  declared,
  presets,
  resolve,
)
from mnemonics_jax.settings.build import build
from mnemonics_jax.settings.declare import check, kind

ROOT = Path(__file__).parents[2]
FIELDS = {f.name: f for group in (Settings, Command) for f in declared(group)}
FLAGS = {name: f for name, f in FIELDS.items() if f.metadata["command"]}
PLAIN = Settings(
  "tiny", "short", net="resnet8", memory="per_class:2", base_classes=3, phases=3
)

# Wrong values of settings that have a check of their own.
CHECKED = {
  "memory": [
    "lots", "20", "per_class", "per_class:0", "per_class:-5", "per_class:--5",
    "per_class:1.5", "total:x", "per_class_bytes:0", "per_class_bytes:",
    "total_bytes:-1",
  ],
  "codec": ["png", "jpeg:0", "jpeg:101", "webp:101", "raw:5"],
  "rehearsal": ["twice", "0", "-1", "1.5"],
  "seeds": ["1,1", "0,,1"],
  "base_model": ["nowhere"],
}  # fmt: skip


def flags_of_a_run():
  found = FlagValues()
  flags.define(found, Settings)
  flags.define(found, Command, defaults=True)
  found.set_default("preset", "short")
  return found


def ask(*typed, dataset="digits"):
  """The settings that a command line asks for."""
  found = flags_of_a_run()
  flags.parse(found, ["command", *typed])
  Command(**flags.given(found, Command))
  return flags.settings(found, dataset)


def mistakes(field):
  """Texts that are no value of a setting: of another kind, or out of its range."""
  about, one, texts = field.metadata, kind(field), [""]
  if typing.get_origin(one) is tuple:
    one = typing.get_args(one)[0]
    texts += ["a,b"]
  if about["choices"]:
    texts += ["magic", ",".join([*about["choices"]][:2])]
  texts += {bool: ["maybe", "2"], int: ["many", "1.5"], float: ["many", "nan", "inf"]}.get(one, [])  # fmt: skip
  texts += [] if about["least"] is None else [f"{about['least'] - 1}"]
  texts += [] if about["most"] is None else [f"{about['most'] + 1}"]
  texts += [
    f"{about[end]}" for end in ("above", "below") if about[end] is not None
  ]
  return texts + CHECKED.get(field.name, [])


MISTAKES = [(name, text) for name, f in FLAGS.items() for text in mistakes(f)]


@pytest.mark.parametrize("name, text", MISTAKES)
def test_a_mistake_gets_one_sentence_with_flag_and_fix(name, text):
  with pytest.raises(UserError) as refused:
    ask(f"--{name}={text}")
  said = flags.in_flags(str(refused.value), flags_of_a_run())
  assert f"--{name}" in said and refused.value.field == name
  assert re.fullmatch(r"[^\n;]+; [^\n]+\.", said), said


def test_settings_with_a_check_of_their_own_have_mistakes():
  own = {name for name, f in FIELDS.items() if f.metadata["check"]}
  assert own == CHECKED.keys()
  assert len(MISTAKES) > 200


@pytest.mark.parametrize("name", FIELDS)
def test_the_ends_of_a_range_are_accepted(name):
  about, one = FIELDS[name].metadata, kind(FIELDS[name])
  is_tuple = typing.get_origin(one) is tuple
  ends = [about[end] for end in ("least", "most") if about[end] is not None]
  inside = [about[end] for end in ("above", "below") if about[end] is not None]
  ends += [abs(end - 1e-9) for end in inside]
  for value in [*ends, *(about["choices"] or ())]:
    check(FIELDS[name], (value,) if is_tuple else value)


@pytest.mark.parametrize(
  "typed, part",
  [
    ("--nosuchflag=1", "--nosuchflag"),
    ("--phases=5,10", "--phases=5,10"),
    ("--less_forget=7.5 --method=lwf", "--method=lwf"),
    ("--validate_on=new --exemplars=herding", "--exemplars=herding"),
    ("--image_size=32", "digits"),
  ],
)
def test_what_else_cannot_be_typed_is_refused(typed, part):
  with pytest.raises(UserError) as refused:
    ask(*typed.split())
  assert part in flags.in_flags(str(refused.value), flags_of_a_run())


def test_a_flag_wins_over_its_preset():
  found = ask("--preset=smoke", "--epochs=7", "--phases=2", "--seeds=3,1")
  assert (found.preset, found.batch_size, found.epochs) == ("smoke", 64, 7)
  assert (found.phases, found.seeds) == (2, (3, 1))


# Help and documentation.


@pytest.mark.parametrize(
  "typed",
  [(f"--preset={name}",) for name in registry.PRESETS]
  + [("--preset=paper", "--exemplars=herding", "--method=e2e")],
)
def test_help_shows_every_flag_with_the_value_it_would_have(typed):
  command = ["command", *typed, "--help"]
  text = flags.help_text("Learns.", flags_of_a_run(), command, "digits")
  shown = dict(
    re.findall(r"^  --(?:\[no\])?(\w+)(?:=| \()?(.*?)\)?$", text, re.M)
  )
  assert shown.keys() == FLAGS.keys() and text.startswith("Learns.\n")
  settings = ask(*typed)
  for field in declared(Settings):
    value = getattr(settings, field.name)
    if field.name in FLAGS and field.name != "seeds":
      written = {bool: "on" if value else "off", type(None): ""}.get(
        type(value), f"{value:g}" if isinstance(value, float) else str(value)
      )
      assert shown[field.name] == written, field.name
  # Each has a heading, and a mistake elsewhere does not hide the values.
  assert "This command:" not in text
  wrong = [*command[:-1], "--epochs=x", "--help"]
  assert len(flags.help_text("", flags_of_a_run(), wrong, "digits")) > 5000
  words = " ".join(text.split())
  for name, field in FLAGS.items():
    assert len(field.metadata["help"]) > 8 and flags.help_of(field) in words, (
      name
    )


# Effect and identity.

HERDING = dict(exemplars="herding")
ADJUSTED = dict(HERDING, adjust=True)
JOINT = dict(HERDING, method="joint")


@pytest.mark.parametrize(
  "chosen, idle, matters",
  [
    (HERDING, dict(recipe="paper", validate_on="new"), dict(epochs=3)),
    (HERDING, dict(init_exemplars="random", max_change=9), dict(adjust=True)),
    (HERDING, dict(adjust_parts=3, max_change=0), dict(finetune="all")),
    (HERDING, dict(code_new=True, drift=2, imitate=True), dict(codec="jpeg:75")),
    (dict(HERDING, codec="jpeg:75"), dict(max_change=3), dict(code_new=True)),
    (ADJUSTED, dict(validate_on="new", init_exemplars="random"), dict(recipe="paper")),
    (ADJUSTED, dict(finetune_epochs=3), dict(adjust_parts=3)),
    ({}, dict(adjust_parts=3, code_new=True), dict(meta_epochs=3)),
    (dict(method="lwf"), dict(less_forget=3.0), dict(max_change=3)),
    (dict(distill=False), dict(less_forget=3.0), dict(scope="head")),
    (JOINT, dict(adjust=True, adjust_parts=3), dict(epochs=3)),
    (JOINT, dict(finetune="all", finetune_epochs=3), dict(seeds=(1,))),
    (JOINT, dict(transfer="out", reference_code=True), dict(net="resnet32")),
    (JOINT, dict(less_forget=1.0, rehearsal="4"), dict(exemplars="random")),
    (dict(dataset="digits"), dict(image_size=32, val_fraction=0.5), {}),
    (dict(dataset="imagenet"), dict(val_fraction=0.5), dict(image_size=32)),
    (dict(dataset="folder"), {}, dict(image_size=32, val_fraction=0.5)),
    (dict(dataset="my pets"), {}, dict(image_size=32, val_fraction=0.5)),
  ],
)  # fmt: skip
def test_what_has_no_effect_is_refused_and_changes_no_identity(
  chosen, idle, matters
):
  settings = dataclasses.replace(PLAIN, **chosen)
  same = dataclasses.replace(settings, **idle)
  assert same.identity() == settings.identity()
  for name in idle:
    with pytest.raises(UserError, match=f"`{name}` has no effect with ."):
      same.refuse_idle([name])
  same.refuse_idle([])
  other = dataclasses.replace(settings, **matters)
  assert (other.identity() == settings.identity()) == (not matters)
  other.refuse_idle(matters)


def test_switching_off_what_has_no_effect_is_accepted():
  joint = dataclasses.replace(PLAIN, **JOINT)
  joint.refuse_idle(
    ["adjust", "finetune", "transfer", "reference_code", "drift"]
  )


NAMES = json.loads((ROOT / "tests/contracts/names.json").read_text())


def test_runs_keep_the_names_of_their_directories():
  for changes, name in NAMES:
    values = {
      n: tuple(v) if isinstance(v, list) else v for n, v in changes.items()
    }
    settings = Settings(**{"dataset": "digits", "preset": "short", **values})
    assert settings.name(7) == name, changes
    identity = settings.identity()
    assert json.loads(json.dumps(identity)) == identity
  # Settings that change no result share the name of the plain run.
  plain = NAMES[0][1]
  alone = {n for changes, name in NAMES if name == plain for n in changes}
  quiet = {f.name for f in declared(Settings) if not f.metadata["numbers"]}
  assert quiet <= alone <= {*quiet, "val_fraction"}


def test_equal_runs_have_one_identity():
  same = dict(base_learning_rate=PLAIN.learning_rate, remat=True)
  assert dataclasses.replace(PLAIN, **same).identity() == PLAIN.identity()


# Presets, and what settings become.


@pytest.mark.parametrize("dataset", [*data.SOURCES, "flowers"])
@pytest.mark.parametrize("preset", registry.PRESETS)
def test_every_preset_of_every_data_set_builds(dataset, preset):
  given = dict(memory="per_class:2", val_fraction=None, images_per_class=None)
  settings = dataclasses.replace(resolve(dataset, preset, {}), **given)
  config, stream = build(settings, tiny.dataset(classes=12))
  assert sum(stream.classes_per_phase) == 12
  assert config.train.epochs == settings.epochs
  epochs = {
    name: resolve(dataset, name, {}).epochs for name in registry.PRESETS
  }
  assert epochs["paper"] > max(epochs["fast"], epochs["short"])
  assert min(epochs["fast"], epochs["short"]) > epochs["smoke"]


def test_presets_differ_where_that_was_measured():
  """docs/choosing.md names the studies."""
  images = ("cifar100", "imagenet", "imagenet_subset")
  for dataset, method in [("digits", "lucir"), ("cifar100", "lucir"), ("folder", "icarl")]:  # fmt: skip
    for preset in ("short", "smoke"):
      found = resolve(dataset, preset, {})
      assert (found.method, found.finetune) == (method, "head")
  for dataset in images:
    for preset in ("short", "fast", "best"):
      assert presets.of(dataset)[preset]["exemplars"] == "herding"
    assert "exemplars" not in presets.of(dataset)["smoke"]
  assert resolve("digits", "short", {}).exemplars == "mnemonics"
  often = {
    (dataset, preset)
    for dataset in data.SOURCES
    for preset in registry.PRESETS
    if resolve(dataset, preset, {}).rehearsal != "once"
  }
  assert often == {("cifar100", "short")}  # With 20 raw images of a class.
  for other in (dict(codec="jpeg:75"), dict(memory="total:2000")):
    assert resolve("cifar100", "short", other).rehearsal == "once"
  for preset in registry.PRESETS:
    weights = {d: resolve(d, preset, {}).less_forget for d in data.SOURCES}
    assert weights == dict(digits=5, cifar100=5, folder=10, imagenet=10, imagenet_subset=10)  # fmt: skip


@pytest.mark.parametrize(
  "preset, study, name",
  [("best", "best", "best"), ("short", "drawing", "four")],
)
def test_what_is_recommended_is_what_was_measured(preset, study, name):
  plan = tables.asked(plan=str(ROOT / f"results/studies/{study}.yaml"))
  given = {**plan.given, **plan.row(name).fixed}
  short = presets.values("cifar100", "short", given)
  measured = Settings("cifar100", preset, **(short | given))
  assert measured == resolve("cifar100", preset, {})


@pytest.mark.parametrize(
  "given, expected",
  [
    (dict(method="joint"), dict(exemplars="herding")),
    (dict(method="joint", exemplars="random"), dict(exemplars="random")),
    (dict(method="e2e"), dict(finetune="all")),
    (dict(method="e2e", finetune="none"), dict(finetune="none")),
    (dict(method="lwf"), dict(finetune="head")),
  ],
)
def test_given_settings_decide_others(given, expected):
  found = resolve("digits", "short", given)
  assert {name: getattr(found, name) for name in expected} == expected
  # The paper's stages are those of its method.
  chosen = resolve("digits", "paper", {**given, **HERDING})
  assert (chosen.adjust, chosen.transfer) == (False, "none")
  stages = resolve("digits", "paper", {})
  assert (stages.adjust, stages.transfer, stages.finetune) == (
    True,
    "in_out",
    "all",
  )


def test_a_rate_that_is_given_is_that_of_phase_0_too():
  rate = lambda given: resolve("cifar100", "fast", given).base_learning_rate
  assert rate({}) == 0.2 and rate(dict(learning_rate=0.3)) is None


def built(**changes):
  return build(dataclasses.replace(PLAIN, **changes), tiny.dataset())


def test_settings_become_the_librarys_configuration():
  config, stream = built(
    memory="total:18", epochs=8, base_epochs=20, learning_rate=0.2,
    weight_decay=0.001, batch_size=16, finetune="head", finetune_epochs=3,
    finetune_learning_rate=0.05, augment="crop", adjust=True, exemplar_chunk=2,
    max_change=4, meta_epochs=7, less_forget=7.0, transfer="out", adjust_parts=3,
  )  # fmt: skip
  assert (
    stream.classes_per_phase == (3, 1, 1, 1) and config.shape == stream.shape
  )
  assert config.method == methods.LUCIR(less_forget_base=7.0)
  assert config.memory == Total(18)
  train = Schedule(8, 0.2, (4, 6), batch_size=16, weight_decay=0.001)
  base = dataclasses.replace(train, epochs=20, milestones=(10, 15))
  balance = Schedule(3, 0.05, (), batch_size=16, weight_decay=0.001)
  assert (config.train, config.base, config.balance) == (train, base, balance)
  assert config.bilevel == BilevelConfig(max_change=4, epochs=7)
  assert config.augment == augment.AUGMENTATIONS["crop"]
  assert (config.adjust, config.adjust_parts, config.exemplar_chunk) == (
    True,
    3,
    2,
  )
  assert (config.transfer, config.finetune) == ("out", "head")
  # The defaults of what a phase does are those of a run.
  fields = {f.name: f.default for f in dataclasses.fields(Config)}
  fields |= dict(exemplars="mnemonics", validate_on=None)  # A run's own.
  assert all(fields[f.name] == f.default for f in declared(Phase))


def test_bytes_and_a_codec_reach_the_phases():
  config, stream = built(memory="per_class_bytes:500", codec="jpeg:50")
  assert config.codec == Jpeg(50)
  assert config.memory == fit(PerClassBytes(500), Jpeg(50), stream[0].images)


def test_schedules_follow_their_settings():
  config, _ = built(learning_rate=0.02, base_learning_rate=0.2)
  assert (config.base.learning_rate, config.train.learning_rate) == (0.2, 0.02)
  for epochs, milestones in {4: (2, 3), 2: (1,), 1: ()}.items():
    config, _ = built(epochs=epochs, base_epochs=epochs)
    assert config.base.milestones == config.train.milestones == milestones


def test_classes_arrive_in_the_order_of_their_seed():
  for seed in (1993, 7):
    order = np.arange(6)
    np.random.RandomState(seed).shuffle(order)
    names = tuple(f"class {label}" for label in order)
    assert built(order_seed=seed)[1].class_names == names
    stream = built(order_seed=seed, classes=5, phases=2)[1]
    assert stream.class_names == names[:5]
  joint = built(method="joint", exemplars="herding")[1]
  assert len(joint[1].labels) == 4 * 12  # The upper bound sees all data again.


def test_recipes_take_single_settings():
  recipe = lambda **changes: built(**changes)[0].bilevel
  assert recipe() == BilevelConfig()
  assert recipe(recipe="paper") == BilevelConfig.paper()
  assert recipe(recipe="paper", scope="head") == BilevelConfig.paper(
    scope="head"
  )
  found = {
    (name, asked): built(recipe=name, validate_on=asked)[0].validate_on
    for name in registry.RECIPES
    for asked in (None, "new", "all")
  }
  assert found == {
    (name, asked): asked or {"tuned": "all", "paper": "new"}[name]
    for name, asked in found
  }


def test_the_reference_code_differs_in_details():
  ours, theirs = built()[0], built(reference_code=True)[0]
  assert (ours.method.reduction, ours.method.head.sigma) == ("sum", 10.0)
  assert (theirs.method.reduction, theirs.method.head.sigma) == ("mean", 1.0)
  relu = lambda **changes: built(**changes)[0].network.module.last_relu
  for name in registry.METHODS:
    chosen = dict(method=name, exemplars="herding")
    assert not relu(**chosen)
    plain = name in ("lucir", "joint")
    assert relu(**chosen, reference_code=True) == (not plain)
  assert built(dtype="bfloat16")[0].network != ours.network


# The Learner, and a setting that is declared while the tests run.


@pytest.mark.parametrize(
  "field", [*declared(Recipe)], ids=lambda field: field.name
)
def test_the_learner_takes_what_a_recipe_has(unchecked, field):
  name, wrong = field.name, "magic" if kind(field) is str else "many"
  assert inspect.signature(Learner).parameters[name].default is None
  if kind(field) is not str or field.metadata["choices"]:
    with pytest.raises(UserError) as refused:
      Learner("resnet8", **{name: wrong})
    assert refused.value.field == name


NEW = """
  warmup: int = setting(TRAINING, 0,
    "Epochs in which the rate rises.", least=0, most=9, needs=dict(curve="cosine"),
    to="train")
"""
LOOK = '''
import json
from absl.flags import FlagValues
from experiments import flags
from mnemonics_jax import Learner
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import Settings, resolve
from mnemonics_jax.settings.build import schedules

def refused(*typed):
  values = FlagValues()
  flags.define(values, Settings)
  values.set_default("preset", "smoke")
  try:
    flags.parse(values, ["command", *typed])
    return flags.settings(values, "digits").warmup
  except UserError as error:
    return flags.in_flags(str(error), values)

values = FlagValues()
flags.define(values, Settings)
values.set_default("preset", "smoke")
plain, chosen = (resolve("digits", "smoke", dict(curve="cosine", **given))
                 for given in (dict(), dict(warmup=5)))
learner = Learner("resnet8", preset="smoke", curve="cosine", warmup=4)
try:
  Learner("resnet8", warmup=99)
except UserError as error:
  keyword = str(error)
print(json.dumps(dict(
  flag=refused("--warmup=5", "--curve=cosine"), wrong=refused("--warmup=10"),
  idle=refused("--warmup=5"), preset=plain.warmup, keyword=keyword,
  identity=[plain.identity()["warmup"], chosen.identity()["warmup"]],
  named=plain.name(0) != chosen.name(0), used=schedules(chosen)["train"].warmup,
  learner=learner._settings.warmup,
  help=flags.help_text("", values, ["command", "--curve=cosine"], "digits"),
)))
'''  # fmt: skip


def test_a_new_setting_is_its_declaration_and_its_use(tmp_path):
  for name in ("mnemonics_jax", "experiments", "docs"):
    shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip

  def insert(name, before, text):
    path = tmp_path / "mnemonics_jax" / name
    old = path.read_text(encoding="utf-8")
    assert old.count(before) == 1
    path.write_text(
      old.replace(before, text.lstrip("\n") + before), encoding="utf-8"
    )

  insert(
    "settings/settings.py", "  milestones: tuple[float, ...] = setting(", NEW
  )
  insert("phase/config.py", '  curve: str = "steps"\n', "  warmup: int = 0\n")
  insert("settings/presets.py", "finetune_epochs=2),\n  },", "warmup=3, ")
  run = lambda *code: subprocess.run(
    [sys.executable, *code], cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
    capture_output=True, text=True,
  )  # fmt: skip
  done = run("-c", LOOK)
  assert not done.returncode, done.stderr
  found = json.loads(done.stdout)
  assert "\n  --warmup=3\n    Epochs in which the rate rises.\n" in found.pop(
    "help"
  )
  why = "`warmup` has no effect with `curve=steps`; leave out one of them."
  assert found == dict(
    flag=5, wrong="--warmup=10 cannot be used; it must be a whole number from 0 to 9.",
    idle=why.replace("`warmup`", "--warmup").replace("`curve=steps`", "--curve=steps"),
    keyword="`warmup=99` cannot be used; it must be a whole number from 0 to 9.",
    preset=3, identity=[3, 5], named=True, used=5, learner=4,
  )  # fmt: skip
  page = run("docs/settings.py")
  assert "| `warmup` | 0 | a whole number from 0 to 9 |" in page.stdout, (
    page.stderr
  )
