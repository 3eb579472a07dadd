"""Exports: for other programs, and for this one to the bit."""

import csv
import json
import shutil

import jax
import numpy as np
from PIL import Image
import pytest
from safetensors.numpy import load_file
from support import finished_run, saved_learner
from support.saved_learner import images, pictures

from mnemonics_jax import (
  Learner,
  UserError,
  data,
  memory,
  phase,
  registry,
  runs,
)
from mnemonics_jax.progress import ignore


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
  """A run after its last phase, and its export."""
  home = tmp_path_factory.mktemp("home")
  learner, known = Learner.load(finished_run.write(home / "run"), seed=1)
  runs.export(learner, known, home / "out")
  return learner, known, home / "out"


def test_predictions_are_the_same_to_the_bit(exported):
  learner, known, path = exported
  other, again = Learner.load(path)
  assert other == learner and again.names == known.names
  assert again.phases == (3, 1) and again.network == known.network
  shown = finished_run.ALL.test_images
  for readout in registry.READOUTS:
    assert np.array_equal(
      learner.predict_proba(known, shown, readout=readout),
      other.predict_proba(again, shown, readout=readout),
    )
  # And what is learned next begins from the same state.
  states = [(s.variables, s.memory) for s in (known.state, again.state)]
  equal = jax.tree.map(lambda a, b: np.array_equal(a, b), *states)
  assert jax.tree.all(equal)
  keys = [jax.random.key_data(s.key) for s in (known.state, again.state)]
  assert np.array_equal(*keys)
  assert again.state.phase == 2 and again.state.classes_seen == 4


def test_exemplars_are_pictures_in_folders_of_their_classes(exported):
  _, known, path = exported
  kept, names = known.exemplars
  rows = list(csv.DictReader((path / "labels.csv").read_text().splitlines()))
  assert [row["class"] for row in rows] == list(names)
  assert [int(row["label"]) for row in rows] == [0] * 3 + [1] * 3 + [2] * 3 + [
    3
  ] * 3
  assert rows[4]["file"] == "train/class 1/001.png"
  for row, image in zip(rows, kept, strict=True):
    with Image.open(path / row["file"]) as picture:
      assert np.array_equal(np.asarray(picture), image)


def test_it_is_a_data_set_again(exported, tmp_path):
  _, known, path = exported
  again = data.load("folder", path, image_size=8, cache_dir=tmp_path)
  assert again.class_names == known.names
  pixels = lambda images: sorted(image.tobytes() for image in images)
  all_images = np.concatenate([again.train_images, again.test_images])
  assert pixels(all_images) == pixels(known.exemplars[0])


def test_other_programs_find_weights_and_their_meaning(exported):
  _, known, path = exported
  arrays = load_file(path / "model.safetensors")
  params = known.state.variables["params"]
  assert np.array_equal(
    arrays["variables/params/head/weight"], params["head"]["weight"]
  )
  assert arrays["variables/params/head/sigma"].shape == ()
  kernel = params["backbone"]["Conv_0"]["kernel"]
  assert np.array_equal(
    arrays["variables/params/backbone/Conv_0/kernel"], kernel
  )
  about = json.loads((path / "model.json").read_text())
  assert about["classes"] == list(known.names)
  assert about["network"] == "ResNet" and about["image_shape"] == [8, 8, 3]
  assert about["mean"] == [0.5] * 3 and about["std"] == [0.25] * 3
  assert about["classes_per_phase"] == [3, 1]


@pytest.fixture
def saved(tmp_path):
  return Learner.load(saved_learner.write(tmp_path / "saved"))


NAMES = ("../../up", "CON", ("a", 1))


def test_any_names_stay_inside(saved, tmp_path):
  learner, known = saved
  home = tmp_path / "home"
  runs.export(learner, known._replace(names=NAMES), home / "out")
  assert [path.name for path in home.iterdir()] == ["out"]
  folders = sorted(path.name for path in (home / "out" / "train").iterdir())
  assert folders == ["%2E.%2F..%2Fup", "%43ON", "('a', 1)"]
  _, again = Learner.load(home / "out")
  assert again.names == NAMES
  assert np.array_equal(again.exemplars[0], known.exemplars[0])


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 4)])
def test_images_that_are_not_rgb(tmp_path, shape):
  channels = shape[2] if len(shape) == 3 else 1
  network = saved_learner.network(
    image_shape=(*shape[:2], channels),
    mean=(0.5,) * channels,
    std=(0.2,) * channels,
  )
  learner = Learner(network, memory="per_class:2", **saved_learner.QUICK)
  # As if it had been learned: what counts here is the memory.
  _, known = Learner.load(saved_learner.write(tmp_path / "saved"))
  pictures = images(4, 0, (*shape[:2], channels))
  labels = np.array([0, 0, 1, 1])
  config = learner._config(network, (2,), labels, None)
  state = phase.begin_run(0, config)
  kept = memory.store(state.memory, pictures, labels)
  state = state._replace(memory=kept, phase=1, classes_seen=2)
  known = known._replace(
    state=state, names=("a", "b"), phases=(2,), network=network
  )
  runs.export(learner, known, tmp_path / "out")
  _, again = Learner.load(tmp_path / "out")
  assert np.array_equal(again.exemplars[0], known.exemplars[0])


def test_nothing_is_overwritten(saved, tmp_path):
  (tmp_path / "mine").mkdir()
  runs.export(*saved, tmp_path / "mine")  # It was empty.
  before = (tmp_path / "mine" / "model.json").read_bytes()
  (tmp_path / "file").write_text("mine")
  for name in ("mine", "file", "saved"):
    with pytest.raises(UserError, match="exists and is not empty"):
      runs.export(*saved, tmp_path / name)
  assert (tmp_path / "mine" / "model.json").read_bytes() == before
  assert (tmp_path / "file").read_text() == "mine"
  assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
  ("name", "damage", "part"),
  [
    ("model.safetensors", lambda b: b[:-1] + bytes([b[-1] ^ 1]), "changed"),
    ("model.safetensors", lambda b: b[:40], "changed"),
    ("model.json", lambda b: b"{}", "damaged"),
    ("model.json", lambda b: b"[]", "damaged"),
    ("model.json", lambda b: b'{"format": 99}', "has format 99"),
    ("labels.csv", lambda b: b"file,class,label\n", "damaged"),
    ("labels.csv", lambda b: b.replace(b"train/", b"../", 1), "elsewhere"),
    ("train/cat/000.png", lambda b: b"no image", "damaged"),
  ],
)
def test_damage_is_noticed(saved, tmp_path, name, damage, part):
  runs.export(*saved, tmp_path / "out")
  path = tmp_path / "out" / name
  path.write_bytes(damage(path.read_bytes()))
  with pytest.raises(UserError, match=part):
    Learner.load(tmp_path / "out")


def test_a_mistake_that_is_no_damage_has_its_own_remedy(saved, tmp_path):
  runs.export(*saved, tmp_path / "out")
  about = tmp_path / "out" / "model.json"
  content = json.loads(about.read_text())
  about.write_text(json.dumps(content | {"format": 99}))
  with pytest.raises(UserError) as error:
    Learner.load(tmp_path / "out")
  assert "damaged" not in str(error.value) and error.value.fix == (
    "install the version that wrote it, or a newer one"
  )
  content["state"]["network"]["class"] = "mine.Network"
  about.write_text(json.dumps(content))
  with pytest.raises(
    UserError, match=r"mine\.Network.*; give a network of"
  ) as e:
    Learner.load(tmp_path / "out")
  assert e.value.field == "network" and "damaged" not in str(e.value)


def test_a_lost_picture_is_noticed(saved, tmp_path):
  runs.export(*saved, tmp_path / "out")
  shutil.rmtree(tmp_path / "out" / "train" / "dog")
  with pytest.raises(UserError, match=r"is damaged \(.*dog"):
    Learner.load(tmp_path / "out")


def test_an_export_is_continued(saved, tmp_path):
  learner, known = saved
  runs.export(learner, known, tmp_path / "out")
  other, again = Learner.load(tmp_path / "out")
  more = [
    one.learn(k, *pictures(owl=4), report=ignore)
    for one, k in ((learner, known), (other, again))
  ]
  shown = images(3, 1)
  assert np.array_equal(
    *(
      one.features(k, shown)
      for one, k in zip((learner, other), more, strict=True)
    )
  )
