"""A base model that runs share changes none of their numbers."""

import dataclasses
import json
import os
from pathlib import Path
import shutil

import jax
import numpy as np
import pytest
from support import damage, interrupted, saved_learner, tiny

from mnemonics_jax import (
  Learner,
  UserError,
  data,
  memory,
  methods,
  protocol,
  runs,
)
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.data.images import Resident, Stored
from mnemonics_jax.errors import DiskError
from mnemonics_jax.identity import restore
from mnemonics_jax.memory import PerClass
from mnemonics_jax.nn.model import Model
from mnemonics_jax.phase import Phase, Stage, begin_run, train_model
from mnemonics_jax.phase.evaluate import extract
from mnemonics_jax.progress import Note, ignore
from mnemonics_jax.runs import artifact, base_models, layout


def test_a_shared_base_model_changes_nothing(tmp_path, whole):
  workdir, models = tmp_path / "out", tmp_path / "models"
  starts = 1
  while not interrupted.run_until(workdir, 16, base_models=models):
    starts += 1
    interrupted.assert_log_is_whole(workdir)
  assert starts > 2
  assert interrupted.files(workdir) == whole()
  interrupted.assert_log_is_whole(workdir)
  (model,) = models.iterdir()
  # Another run finds it, and a killed one's draft does no harm.
  (models / f"{model.name}.partial-1").mkdir()
  interrupted.run(tmp_path / "again", interrupted.NEVER, base_models=models)
  assert interrupted.files(tmp_path / "again") == whole()
  assert list(models.iterdir()) == [model]


def test_a_base_model_that_another_run_has_finished_first(tmp_path, whole):
  workdir, models = tmp_path / "out", tmp_path / "models"
  assert not interrupted.run_until(workdir, 1, base_models=models)
  other = tmp_path / "other"
  assert not interrupted.run_until(
    other, lambda: [*models.glob("*")], base_models=models
  )
  interrupted.run(workdir, interrupted.NEVER, base_models=models)
  assert interrupted.files(workdir) == whole()
  interrupted.assert_log_is_whole(workdir)


def _name(seed=0, *, split=(2, 1, 1), data=None, method=None, **options):
  """Of the base model of a configuration."""
  config, stream = tiny.setup(
    method or methods.LUCIR(), split=split, data=data, **options
  )
  return base_models._name(Phase(begin_run(seed, config), stream[0], config))


def test_runs_that_differ_later_have_the_same_base_model():
  longer = dataclasses.replace(tiny.SCHEDULE, epochs=9)
  for options in [
    dict(memory=PerClass(2)),
    dict(exemplars="mnemonics", adjust=True, bilevel=BilevelConfig(epochs=3)),
    dict(train=longer, balance=longer, transfer="in_out", finetune="all"),
    dict(method=methods.LUCIR(distill=False)),
  ]:
    assert _name(**options) == _name(), options


def test_the_memory_decides_how_much_bic_holds_out():
  """Of 20 exemplars two, of five one; other methods train on all images."""
  data = tiny.dataset(classes=4, train=30)
  for method, shared in ((methods.BiC(), False), (methods.LwF(), True)):
    names = {
      _name(method=method, data=data, memory=PerClass(count), split=(3, 1))
      for count in (20, 5)
    }
    assert (len(names) == 1) == shared


def test_whatever_changes_the_base_model_changes_its_name(monkeypatch):
  names = [
    _name(),
    _name(seed=1),
    _name(split=(3, 1)),
    _name(data=tiny.dataset(classes=4, seed=1)),
    _name(method=methods.LwF()),
    _name(width=8),
    _name(base=dataclasses.replace(tiny.SCHEDULE, epochs=9)),
    _name(augment=interrupted.OPTIONS["augment"]),
  ]
  numerics = base_models.NUMERICS
  monkeypatch.setattr(base_models, "NUMERICS", numerics + 1)
  names.append(_name())
  assert len(set(names)) == len(names)


def test_room_for_a_larger_memory_changes_no_number():
  """Later phases may need a larger pool, and phase 0 has their capacity."""
  found = []
  for count in (2, 12):
    config, stream = tiny.setup(
      methods.LwF(), split=(2, 1, 1), memory=PerClass(count),
      base=interrupted.SCHEDULE,
    )  # fmt: skip
    found.append(train_model(Phase(begin_run(0, config), stream[0], config)))
    assert (config.sizes.pool > 24) == (count == 12)
  assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), *found))


@pytest.fixture
def phase_0():
  config, stream = tiny.setup(methods.LUCIR())
  return Phase(begin_run(0, config), stream[0], config)


def test_images_that_are_read_later_are_not_read_for_a_name():
  def stored(dataset, kind=Resident):
    pixels = dataset.train_images
    later = Stored(kind(pixels), np.arange(len(pixels)))
    return dataclasses.replace(dataset, train_images=later)

  class Unread(Resident):
    def read(self, rows, draws=None):
      raise AssertionError

  dataset = tiny.dataset(4)
  name = _name(data=stored(dataset, Unread))
  assert name == _name(data=stored(dataset))
  other = dataset.train_images.copy()
  other[0, 0, 0, 0] ^= 1
  changed = dataclasses.replace(dataset, train_images=other)
  assert name != _name(data=stored(changed))
  # Of classes that come later nothing matters, here, too.
  later = dataset.train_images.copy()
  later[-1] ^= 1
  same = dataclasses.replace(dataset, train_images=later)
  assert name == _name(data=stored(same))


def test_a_model_that_is_there_is_taken(tmp_path, phase_0):
  kept = jax.tree.map(lambda x: x + 1, phase_0.state.variables)
  artifact.save(tmp_path / base_models._name(phase_0), kept)
  found = base_models.train(tmp_path, phase_0, Stage())
  assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), found, kept))


def test_a_damaged_model_is_told(tmp_path, phase_0):
  path = tmp_path / base_models._name(phase_0)
  artifact.save(path, phase_0.state.variables)
  damage.flip_a_bit(path)
  with pytest.raises(UserError, match=r"damaged .*; remove it, and") as error:
    base_models.train(tmp_path, phase_0, Stage())
  assert error.value.field == "base_models"


def test_a_model_that_cannot_be_written_is_told(tmp_path, phase_0, monkeypatch):
  monkeypatch.setattr(
    "mnemonics_jax.phase.train.train_model",
    lambda phase, _: phase.state.variables,
  )
  (tmp_path / "file").write_text("")
  with pytest.raises(DiskError, match=r"`base_models=.*` cannot be written"):
    base_models.train(tmp_path / "file", phase_0, Stage())


# Published models.


QUICK = dataclasses.replace(tiny.SCHEDULE, epochs=1)
OPTIONS = dict(base=QUICK, train=QUICK, split=(3, 1))
NAMES = ("class 0", "class 1", "class 2")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
  """A run of two seeds, the models that it began with, the second published."""
  home = tmp_path_factory.mktemp("home")
  config, stream = tiny.setup(methods.LUCIR(), **OPTIONS)
  models = home / "models"
  runs.run(config, stream, home / "run", seeds=(0, 1), base_models=models)
  for model in models.iterdir():
    with pytest.raises(UserError, match="no seed of"):
      base_models.publish(model, home, home / "other")
    base_models.publish(model, home / "run", home / "all" / model.name)
  for path in (home / "all").iterdir():
    if base_models.about(path)["made_with"][1][3] == 1:
      shutil.copytree(path, home / "published" / "tiny_resnet8")
  return home


@pytest.fixture
def model(home, tmp_path):
  """A copy of it."""
  return shutil.copytree(home / "published" / "tiny_resnet8", tmp_path / "tiny")


def test_what_is_published_tells_what_it_is(home, model):
  about = json.loads((model / "base_model.json").read_text())
  record = runs.load_run(home / "run").results["runs"][1]
  shares = record["phases"][0]["moments"]["trained"]
  assert about["accuracy"] == {n: shares[n]["all"] for n in ("head", "nme")}
  assert about["class_names"] == list(NAMES)
  (network, _, schedule, _), (_, names, sizes, seed) = about["made_with"]
  assert network["class"].endswith("Network")
  assert schedule["fields"]["epochs"] == 1
  assert (names, sizes, seed) == (list(NAMES), [12, 12, 12], 1)
  assert sorted(p.name for p in model.iterdir()) == [
    "base_model.json",
    "manifest.json",
    "model.safetensors",
  ]


def _run(home, tmp_path, method=methods.LUCIR(), seed=1, **options):
  """A run that looks for its base model among published ones, and their names."""
  config, stream = tiny.setup(method, **(OPTIONS | options))
  models = shutil.copytree(home / "published", tmp_path / "models")
  heard = []
  results = runs.run(
    config, stream, tmp_path / "out", seeds=(seed,), base_models=models,
    report=heard.append,
  )  # fmt: skip
  notes = [event.text for event in heard if isinstance(event, Note)]
  taken = any("takes the model in" in text for text in notes)
  return results["runs"][0], taken, len(list(models.iterdir()))


def test_it_is_found_by_what_decides_its_numbers(home, tmp_path):
  found, taken, models = _run(home, tmp_path, memory=memory.PerClass(3))
  assert found == runs.load_run(home / "run").results["runs"][1]
  assert taken and models == 1


@pytest.mark.parametrize(
  "change",
  [
    dict(seed=0),
    dict(base=dataclasses.replace(QUICK, learning_rate=0.01)),
    dict(data=tiny.dataset(classes=4, seed=3)),
    dict(method=methods.LwF()),
  ],
)
def test_others_train_their_own(home, tmp_path, change):
  _, taken, models = _run(home, tmp_path, **change)
  assert not taken and models == 2


def test_a_run_of_phase_0_alone_can_publish_it(tmp_path):
  data = tiny.dataset(classes=4)
  config, alone = tiny.setup(
    methods.LUCIR(), **(OPTIONS | dict(split=(3,), data=data))
  )
  models = tmp_path / "trained"
  runs.run(config, alone, tmp_path / "alone", seeds=(1,), base_models=models)
  (trained,) = models.iterdir()
  base_models.publish(trained, tmp_path / "alone", tmp_path / "public" / "tiny")
  config, stream = tiny.setup(methods.LUCIR(), **OPTIONS)
  assert config.model.classes == 4
  assert base_models.find(tmp_path / "public", config, stream, 1) is not None
  results = runs.run(
    config,
    stream,
    tmp_path / "out",
    seeds=(1,),
    base_models=tmp_path / "public",
  )
  first = runs.load_run(tmp_path / "alone").results["runs"][0]["phases"][0]
  assert results["runs"][0]["phases"][0]["moments"] == first["moments"]


def test_settings_that_came_later_do_not_hide_it(home, tmp_path):
  """They have their defaults, and so it has been trained."""
  shutil.copytree(home / "published", tmp_path / "older")
  path = tmp_path / "older" / "tiny_resnet8" / "base_model.json"
  (path.parent / "manifest.json").unlink()  # As in version 0.1.
  about = json.loads(path.read_text())
  del about["manifest"], about["made_with"][0][2]["fields"]["curve"]
  path.write_text(json.dumps(about))
  config, stream = tiny.setup(methods.LUCIR(), **OPTIONS)
  found = base_models.find(tmp_path / "older", config, stream, 1)
  assert found is not None and found.path == path.parent
  about["made_with"][0][2]["fields"]["unheard"] = 3  # Of a later version.
  path.write_text(json.dumps(about))
  assert base_models.find(tmp_path / "older", config, stream, 1) is None


def test_other_seeds_and_schedules_may_begin_with_it(home, model, tmp_path):
  longer = dataclasses.replace(QUICK, epochs=2, learning_rate=0.01)
  config, stream = tiny.setup(
    methods.LUCIR(), **(OPTIONS | dict(base=longer, train=longer))
  )
  runs.run(config, stream, tmp_path / "out", seeds=(5,), base_model=model)
  first = lambda path, seed: runs.load_run(path).arrays(seed, 0, "confusion")
  one, other = first(tmp_path / "out", 5), first(home / "run", 1)
  for name in ("confusion/trained/head", "confusion/trained/nme"):
    np.testing.assert_array_equal(one[name], other[name])


def _images(names):
  data = tiny.dataset()
  rows = [np.flatnonzero(data.train_labels == int(n[-1])) for n in names]
  return data.train_images[np.concatenate(rows)], np.repeat(names, 12)


def test_a_learner_begins_with_it_in_any_order_of_its_classes(home, model):
  quick = {k: v for k, v in saved_learner.QUICK.items() if k != "augment"}
  learner = Learner(
    exemplars="herding", memory="per_class:3", base_model=str(model),
    augment="none", finetune="none",
    **{k: v for k, v in quick.items() if k != "finetune"},
  )  # fmt: skip
  mixed = ("class 2", "class 0", "class 1")
  known = learner.learn(None, *_images(mixed), report=ignore)
  test = tiny.dataset()
  shown = test.test_images[test.test_labels < 3]
  _, run = Learner.load(home / "run", seed=1, phase=0)
  plain = dataclasses.replace(learner, base_model=None)
  np.testing.assert_array_equal(
    learner.predict(known, shown, readout="head"),
    plain.predict(run, shown, readout="head"),
  )
  weight = lambda k: np.asarray(k.state.variables["params"]["head"]["weight"])
  np.testing.assert_array_equal(weight(known)[:3], weight(run)[[2, 0, 1]])
  # What comes next is trained as ever.
  more = learner.learn(known, *_images(["class 4"]), report=ignore)
  assert more.names == (*mixed, "class 4")
  with pytest.raises(UserError, match=r"phase 0 has others \(class 2, class 4"):
    learner.learn(None, *_images(("class 0", "class 1", "class 4")))


@pytest.mark.parametrize(
  ("options", "part"),
  [
    (dict(split=(2, 2)), "has others"),
    (dict(width=8), "another network; use the `network`"),
    (dict(method=methods.LwF()), "another head; use the `method`"),
  ],
)
def test_what_does_not_fit_is_refused(model, tmp_path, options, part):
  options = OPTIONS | options
  config, stream = tiny.setup(options.pop("method", methods.LUCIR()), **options)
  with pytest.raises(UserError, match=part) as error:
    runs.run(config, stream, tmp_path / "out", base_model=model)
  assert error.value.field == "base_model"


@pytest.mark.parametrize(
  ("name", "content", "part"),
  [
    ("base_model.json", b"{}", "damaged"),
    ("base_model.json", b"[", "damaged"),
    ("base_model.json", None, "is not a published model"),
    ("model.safetensors", None, "damaged"),
  ],
)
def test_damage_is_told(model, name, content, part):
  (model / name).unlink()
  if content is not None:
    (model / name).write_bytes(content)
  with pytest.raises(UserError, match=part) as error:
    base_models.load(model)
  assert error.value.field == "base_model"


def test_a_newer_format_is_refused(model):
  about = json.loads((model / "base_model.json").read_text())
  (model / "base_model.json").write_text(json.dumps(about | {"format": 9}))
  with pytest.raises(UserError, match="has format 9"):
    base_models.load(model)


# What may be published.


def _begun(home, method=methods.LUCIR(), seed=0, **options):
  """A run, and the base model that it began with."""
  config, stream = tiny.setup(
    method, split=(2, 1), base=QUICK, train=QUICK, **options
  )
  runs.run(
    config, stream, home / "run", seeds=(seed,), base_models=home / "models"
  )
  (model,) = (home / "models").iterdir()
  return home / "run", model


def test_a_model_of_another_run_is_not_published(tmp_path):
  run, model = _begun(tmp_path / "a")
  _, other = _begun(tmp_path / "b", seed=7)
  with pytest.raises(UserError, match="no seed of"):
    base_models.publish(other, run, tmp_path / "to")
  with pytest.raises(UserError, match="no seed of"):
    base_models.publish(model, tmp_path / "nowhere", tmp_path / "to")
  (tmp_path / "there").mkdir()
  with pytest.raises(UserError, match="exists"):
    base_models.publish(model, run, tmp_path / "there")
  assert not (tmp_path / "to").exists()
  about = base_models.publish(model, run, tmp_path / "to")
  assert base_models.about(tmp_path / "to") == about
  assert about["accuracy"].keys() == {"head", "nme"}


def test_what_a_memory_has_decided_is_not_for_others(tmp_path):
  run, model = _begun(tmp_path, methods.BiC())
  with pytest.raises(UserError, match="holds images out for a memory"):
    base_models.publish(model, run, tmp_path / "to")


def test_a_model_that_was_tuned_afterwards_is_not_what_a_run_began_with(
  tmp_path,
):
  run, model = _begun(tmp_path, finetune="all")
  with pytest.raises(UserError, match="one that fine-tunes whole models"):
    base_models.publish(model, run, tmp_path / "to")


@pytest.mark.parametrize("lacking", ["results", "numerics", "data"])
def test_a_run_of_a_version_that_said_less_is_refused(tmp_path, lacking):
  run, model = _begun(tmp_path)
  config = layout.read_config(run)
  del config[lacking]
  layout.write_config(run, config)
  with pytest.raises(
    UserError, match=rf"config\.json lacks {lacking}"
  ) as error:
    base_models.publish(model, run, tmp_path / "to")
  assert error.value.field == "run" and not (tmp_path / "to").exists()


def test_a_run_whose_log_lacks_moments_is_refused(tmp_path):
  run, model = _begun(tmp_path)
  log = layout.metrics_path(run)
  lines = [json.loads(line) for line in log.read_text().splitlines()]
  for line in lines:
    line.pop("moments", None)
  log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
  with pytest.raises(UserError, match="has no numbers of phase 0"):
    base_models.publish(model, run, tmp_path / "to")


# Those of the repository.


MODELS = sorted(
  path.parent
  for path in (Path(__file__).parents[2] / "results/base_models").glob(
    "*/*.json"
  )
)
each = pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)


def logits(path, images):
  """What a published model says of its own classes."""
  base = base_models.load(path)
  (network, method, *_), _ = restore(base.about["made_with"])
  rows = len(base.variables["params"]["head"]["weight"])
  model = Model(network, method.head, rows)
  _, found = extract(model, method, base.variables, images)
  return found[:, : len(base.about["class_names"])]


@each
def test_it_is_whole_and_tells_where_it_is_from(path):
  about = base_models.load(path).about
  assert len(about["commit"]) == 40 and about["command"].startswith("python -m")
  shape = base_models.network(path).image_shape
  images = np.random.default_rng(0).integers(0, 256, (4, *shape), np.uint8)
  found = logits(path, images)
  assert found.shape == (4, len(about["class_names"]))
  assert np.isfinite(found).all() and np.ptp(found, axis=0).all()


@each
@pytest.mark.slow
def test_it_is_as_good_as_it_says(path):
  """With the same images, on any machine, up to some near ties."""
  if "MNEMONICS_DATA_DIR" not in os.environ:
    pytest.skip("MNEMONICS_DATA_DIR does not say where CIFAR-100 is")
  about = base_models.about(path)
  dataset = data.load(about["dataset"], os.environ["MNEMONICS_DATA_DIR"])
  names = about["class_names"]
  order = protocol.class_order(len(dataset.class_names))[: len(names)]
  assert [dataset.class_names[label] for label in order] == names
  rows = np.isin(dataset.test_labels, order)
  found = order[logits(path, dataset.test_images[rows]).argmax(-1)]
  accuracy = (found == dataset.test_labels[rows]).mean()
  assert accuracy == pytest.approx(about["accuracy"]["head"], abs=1e-3)
