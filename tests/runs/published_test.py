"""A published model of phase 0: found, taken, refused."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from support import saved_learner, tiny

from mnemonics_jax import Learner, UserError, memory, methods, runs
from mnemonics_jax.progress import Note, ignore
from mnemonics_jax.runs import published, publishing

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
      publishing.publish(model, home, home / "other")
    publishing.publish(model, home / "run", home / "all" / model.name)
  for path in (home / "all").iterdir():
    if published.about(path)["made_with"][1][3] == 1:
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
  publishing.publish(trained, tmp_path / "alone", tmp_path / "public" / "tiny")
  config, stream = tiny.setup(methods.LUCIR(), **OPTIONS)
  assert config.model.classes == 4
  assert published.find(tmp_path / "public", config, stream, 1) is not None
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
  about = json.loads(path.read_text())
  del about["made_with"][0][2]["fields"]["curve"]
  path.write_text(json.dumps(about))
  config, stream = tiny.setup(methods.LUCIR(), **OPTIONS)
  found = published.find(tmp_path / "older", config, stream, 1)
  assert found is not None and found.path == path.parent
  about["made_with"][0][2]["fields"]["unheard"] = 3  # Of a later version.
  path.write_text(json.dumps(about))
  assert published.find(tmp_path / "older", config, stream, 1) is None


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
    ("model.safetensors", b"x", "model.safetensors changed"),
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
    published.load(model)
  assert error.value.field == "base_model"


def test_a_newer_format_is_refused(model):
  about = json.loads((model / "base_model.json").read_text())
  (model / "base_model.json").write_text(json.dumps(about | {"format": 9}))
  with pytest.raises(UserError, match="has format 9"):
    published.load(model)
