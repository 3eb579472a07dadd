"""Learners are saved and loaded; a finished run is a learner, too."""

import csv
import dataclasses
import errno
import hashlib
import json
import os
import shutil
from unittest import mock

from flax import linen
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
from mnemonics_jax.errors import DiskError
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.progress import ignore
from mnemonics_jax.runs import artifact, layout, learners
from mnemonics_jax.runs.journal import pack_state
from mnemonics_jax.runs.phase_arrays import read_phase_arrays


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  return saved_learner.write(tmp_path_factory.mktemp("saved") / "learner")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
  return finished_run.write(tmp_path_factory.mktemp("finished") / "run")


def same(one, other):
  equal = jax.tree.map(lambda a, b: np.array_equal(a, b), one, other)
  return jax.tree.all(equal)


def state_arrays(known):
  state = known.state
  key = jax.random.key_data(state.key)
  return state.variables, state.memory, key, state.phase, state.classes_seen


# Saved learners.


def test_what_was_saved_comes_back_to_the_bit(saved, tmp_path):
  learner, known = Learner.load(saved)
  learner.save(known, tmp_path / "again")
  other, again = Learner.load(str(tmp_path / "again"))
  assert other == learner and again.names == known.names
  assert again.phases == (2, 1) and again.network == known.network
  assert same(state_arrays(known), state_arrays(again))
  shown = images(5, 1)
  for readout in registry.READOUTS:
    assert np.array_equal(
      learner.predict_proba(known, shown, readout=readout),
      other.predict_proba(again, shown, readout=readout),
    )
  more = [
    one.learn(k, *pictures(owl=4, hen=4), report=ignore)
    for one, k in ((learner, known), (other, again))
  ]
  assert same(state_arrays(more[0]), state_arrays(more[1]))


def test_saving_again_replaces(saved, tmp_path):
  learner, known = Learner.load(saved)
  learner.save(known, tmp_path / "here")
  renamed = known._replace(names=(1, (2, "b"), "c\n"))
  learner.save(renamed, tmp_path / "here")
  assert Learner.load(tmp_path / "here")[1].names == (1, (2, "b"), "c\n")
  assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_nothing_else_is_replaced(saved, tmp_path, finished):
  learner, known = Learner.load(saved)
  (tmp_path / "mine").mkdir()
  (tmp_path / "mine" / "thesis.txt").write_text("years")
  checkpoint = finished / "seed_0" / "checkpoints" / "phase_01"
  before = sorted(checkpoint.rglob("*"))
  for path in (tmp_path / "mine", finished, checkpoint):
    with pytest.raises(UserError, match="exists and is not a saved learner"):
      learner.save(known, path)
  assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"
  assert sorted(checkpoint.rglob("*")) == before


@pytest.mark.parametrize("there", [True, False])
def test_what_lies_beside_is_left_alone(saved, tmp_path, there):
  """Also under names that earlier versions took for drafts of their own."""
  learner, known = Learner.load(saved)
  learner.save(known._replace(names=(1, 2, 3)), tmp_path / "m.old")
  (tmp_path / "m.new").mkdir()
  (tmp_path / "m.new" / "thesis.txt").write_text("years")
  for _ in range(1 + there):
    learner.save(known, tmp_path / "m")
  assert Learner.load(tmp_path / "m.old")[1].names == (1, 2, 3)
  assert (tmp_path / "m.new" / "thesis.txt").read_text() == "years"
  assert sorted(os.listdir(tmp_path)) == ["m", "m.new", "m.old"]


@pytest.mark.parametrize("left", [("old",), ("new", "old"), ("new",)])
def test_a_kill_of_an_earlier_version_is_recovered(
  saved, tmp_path, left, monkeypatch
):
  """It saved to m.new, renamed m to m.old, and then m.new to m."""
  learner, known = Learner.load(saved)
  for word in left:
    shutil.copytree(saved, tmp_path / f"m.{word}")
    learner.save(known._replace(names=(word, 2, 3)), tmp_path / f"m.{word}")
  with pytest.warns(UserWarning, match=rf"m\.{left[0]} is read instead"):
    _, found = Learner.load(tmp_path / "m")
  assert found.names == (left[0], 2, 3)
  with monkeypatch.context() as patch:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    patch.setattr(artifact, "_check_room", mock.Mock(side_effect=full))
    with pytest.raises(DiskError):
      learner.save(known, tmp_path / "m")
  assert sorted(os.listdir(tmp_path)) == [f"m.{w}" for w in sorted(left)]
  learner.save(known, tmp_path / "m")
  assert Learner.load(tmp_path / "m")[1].names == known.names
  for word in left:
    assert Learner.load(tmp_path / f"m.{word}")[1].names == (word, 2, 3)


def test_a_kill_between_two_renames_is_recovered(saved, tmp_path):
  shutil.copytree(saved, tmp_path / ".m.17-0123abcd.old")
  with pytest.warns(UserWarning, match="is read instead"):
    learner, known = Learner.load(tmp_path / "m")
  learner.save(known, tmp_path / "m")
  assert os.listdir(tmp_path) == ["m"]


def test_a_link_is_followed(saved, tmp_path):
  learner, known = Learner.load(saved)
  (tmp_path / "link").symlink_to("real")
  for names in ((1, 2, 3), (4, 5, 6)):
    learner.save(known._replace(names=names), tmp_path / "link")
    assert Learner.load(tmp_path / "link")[1].names == names
    assert Learner.load(tmp_path / "real")[1].names == names
  assert (tmp_path / "link").is_symlink()
  assert sorted(os.listdir(tmp_path)) == ["link", "real"]


class Own(linen.Module):
  width: int = 8

  @linen.compact
  def __call__(self, images, train):
    return linen.Dense(self.width)(images.reshape(len(images), -1))


class Deeper(linen.Module):
  @linen.compact
  def __call__(self, images, train):
    return linen.Dense(8)(Own()(images, train))


def test_a_network_of_your_own_is_given_again(tmp_path):
  learner = Learner(Own(), memory="per_class:2", **saved_learner.QUICK)
  known = learner.learn(None, *pictures(cat=4, dog=4), report=ignore)
  learner.save(known, tmp_path / "own")
  with pytest.raises(UserError, match=r"Own, .* again, as `network=\.\.\.`"):
    Learner.load(tmp_path / "own")
  for other in (Own(9), Deeper()):
    with pytest.raises(UserError, match="not the weights of this `network`"):
      Learner.load(tmp_path / "own", network=other)
  shown = images(3, 1)
  for network in (Own(), Network(Own(), (8, 8, 3))):
    other, again = Learner.load(tmp_path / "own", network=network)
    assert other.network == network
    assert np.array_equal(
      learner.predict_proba(known, shown), other.predict_proba(again, shown)
    )


def test_what_cannot_be_written_is_refused(saved, tmp_path):
  learner, known = Learner.load(saved)
  names = (object(), "dog", "fox")
  with pytest.raises(
    UserError, match=r"cannot be written down.*texts, numbers"
  ):
    learner.save(known._replace(names=names), tmp_path / "out")
  nothing = lambda key, images: images
  with pytest.raises(UserError, match="the learner cannot be written down"):
    dataclasses.replace(learner, augment=nothing).save(known, tmp_path / "out")
  assert not list(tmp_path.iterdir())


def test_what_cannot_be_loaded_is_explained(saved, tmp_path):
  for path, problem in [
    (tmp_path / "nowhere", "there is no "),
    (tmp_path, "there is nothing learned in "),
  ]:
    with pytest.raises(UserError, match=f"{problem}{path}; name a directory"):
      Learner.load(path)
  with pytest.raises(
    UserError, match="`phase=1` chooses in the work directory"
  ):
    Learner.load(saved, phase=1)


def signed(path, change):
  """Changes the info of a saved learner, and the checksum of it."""
  info = json.loads((path / "info.json").read_text())
  change(info)
  (path / "info.json").write_text(json.dumps(info))
  manifest = json.loads((path / "manifest.json").read_text())
  content = (path / "info.json").read_bytes()
  manifest["files"]["info.json"] = hashlib.sha256(content).hexdigest()
  (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
  "change",
  [
    dict(names=["9**9**9", "1", "2"]), dict(names=["1", "1", "2"]),
    dict(names=["["]), dict(names=["{}", "1", "2"]), dict(room="8"),
    dict(room=2), dict(network=None), dict(phases=[9]), dict(phases=None),
    dict(classes_seen=7), dict(codec=3), dict(learner=[]),
  ],
  ids=str,
)  # fmt: skip
def test_content_that_contradicts_itself_is_damage(saved, tmp_path, change):
  """Also if whoever wrote it has counted the checksums."""
  path = shutil.copytree(saved, tmp_path / "hostile")
  signed(path, lambda info: info.update(change))
  with pytest.raises(UserError):
    Learner.load(path)


@pytest.mark.parametrize("name", ["manifest.json", "info.json"])
def test_a_pipe_is_not_waited_for(saved, tmp_path, name):
  path = shutil.copytree(saved, tmp_path / "pipe")
  (path / name).unlink()
  os.mkfifo(path / name)
  with pytest.raises(UserError, match=r"damaged|nothing learned"):
    Learner.load(path)


def test_files_from_when_the_room_was_a_setting(saved):
  learner, known = Learner.load(saved)
  info = learners.describe(learner, known)
  info["learner"]["fields"]["room"] = 4
  assert learners.remember(info, pack_state(known.state), None)[0] == learner


# Finished runs.


def test_a_run_predicts_what_it_measured(finished):
  results = json.loads((finished / "results.json").read_text())
  data = finished_run.part(4)
  for seed, run in enumerate(results["runs"]):
    for number, record in enumerate(run["phases"]):
      learner, known = Learner.load(finished, seed=seed, phase=number)
      seen = record["classes_seen"]
      assert known.names == data.class_names[:seen] and learner.seed == seed
      rows = data.test_labels < seen
      names = [data.class_names[label] for label in data.test_labels[rows]]
      for readout in registry.READOUTS:
        scores = learner.evaluate(
          known, data.test_images[rows], names, readout=readout
        )
        assert scores.accuracy == record["accuracy"][readout]
        name = f"confusion/final/{readout}"
        (counts,) = read_phase_arrays(finished, seed, number, name).values()
        assert np.array_equal(scores.confusion, counts)


def test_by_default_the_first_seed_after_its_last_phase(finished):
  learner, known = Learner.load(finished)
  other, last = Learner.load(finished, seed=0, phase=1)
  assert learner == other and same(state_arrays(known), state_arrays(last))


def test_a_run_is_continued(finished):
  """With its own settings; what it knew stays where it was."""
  learner, known = Learner.load(finished)
  assert learner.method == finished_run.METHOD
  assert learner.base.epochs == 8 and learner.finetune == "head"
  data = finished_run.ALL
  new = data.train_labels == 4
  more = learner.learn(
    known,
    data.train_images[new],
    ["class 4"] * int(new.sum()),
    test=(data.test_images[:30], [f"class {i // 6}" for i in range(30)]),
    report=ignore,
  )
  assert more.names == data.class_names[:5] and more.phases == (3, 1, 1)
  assert more.state.memory.counts.tolist() == [3] * 5 + [0] * 3
  old, _ = known.exemplars
  assert np.array_equal(more.exemplars[0][: len(old)], old)
  assert more.result.confusion["final"]["head"].sum() == 30


def test_loading_keeps_every_setting(finished, tmp_path):
  """Also those whose defaults a learner has otherwise."""
  run = shutil.copytree(finished, tmp_path / "run")
  config = layout.read_config(run)
  fields = config["config"]["fields"]
  fields |= {"augment_exemplars": False, "exemplar_chunk": 1, "adjust": True}
  layout.write_config(run, config)
  learner, _ = Learner.load(run)
  chosen = learner.augment_exemplars, learner.exemplar_chunk, learner.adjust
  assert chosen == (False, 1, True)


def test_choices_that_are_not_there(finished, tmp_path):
  with pytest.raises(UserError, match=r"`seed=7` has nothing saved.* 0, 1"):
    Learner.load(finished, seed=7)
  with pytest.raises(UserError, match=r"`phase=2` is not saved.* 0, 1"):
    Learner.load(finished, phase=2)
  older = shutil.copytree(finished, tmp_path / "older")
  config = layout.read_config(older)
  for lacking in ("config", "class_names"):
    layout.write_config(older, {k: config[k] for k in config if k != lacking})
    with pytest.raises(UserError, match="does not describe the model"):
      Learner.load(older)
  (older / "config.json").unlink()
  with pytest.raises(UserError, match="is a checkpoint of a run"):
    Learner.load(older / "seed_0" / "checkpoints" / "phase_01")


def test_a_description_of_something_else_is_refused(finished, tmp_path):
  run = shutil.copytree(finished, tmp_path / "run")
  config = layout.read_config(run)
  config["config"]["fields"]["augment"] = {"class": "os.system", "fields": {}}
  layout.write_config(run, config)
  with pytest.raises(UserError, match=r"made with os\.system"):
    Learner.load(run)


# Exports.


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
def loaded(tmp_path):
  return Learner.load(saved_learner.write(tmp_path / "saved"))


NAMES = ("../../up", "CON", ("a", 1))


def test_any_names_stay_inside(loaded, tmp_path):
  learner, known = loaded
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


def test_nothing_is_overwritten(loaded, tmp_path):
  (tmp_path / "mine").mkdir()
  runs.export(*loaded, tmp_path / "mine")  # It was empty.
  before = (tmp_path / "mine" / "model.json").read_bytes()
  (tmp_path / "file").write_text("mine")
  for name in ("mine", "file", "saved"):
    with pytest.raises(UserError, match="exists and is not empty"):
      runs.export(*loaded, tmp_path / name)
  assert (tmp_path / "mine" / "model.json").read_bytes() == before
  assert (tmp_path / "file").read_text() == "mine"
  assert len(list(tmp_path.iterdir())) == 3


def unsigned(path):
  """Makes an export one of version 0.1, which has no checksums of most files."""
  (path / "manifest.json").unlink()
  about = json.loads((path / "model.json").read_text())
  del about["manifest"]
  (path / "model.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
  ("name", "damage", "part"),
  [
    ("model.json", lambda b: b"{}", "damaged"),
    ("model.json", lambda b: b"[]", "damaged"),
    ("model.json", lambda b: b'{"format": 99}', "has format 99"),
    ("labels.csv", lambda b: b"file,class,label\n", "damaged"),
    ("labels.csv", lambda b: b.replace(b"train/", b"../", 1), "elsewhere"),
    ("train/cat/000.png", lambda b: b"no image", "damaged"),
  ],
)
def test_content_that_cannot_be_is_noticed(
  loaded, tmp_path, name, damage, part
):
  runs.export(*loaded, tmp_path / "out")
  unsigned(tmp_path / "out")
  path = tmp_path / "out" / name
  path.write_bytes(damage(path.read_bytes()))
  with pytest.raises(UserError, match=part):
    Learner.load(tmp_path / "out")


def test_a_mistake_that_is_no_damage_has_its_own_remedy(loaded, tmp_path):
  runs.export(*loaded, tmp_path / "out")
  unsigned(tmp_path / "out")
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


def test_a_lost_picture_is_noticed(loaded, tmp_path):
  runs.export(*loaded, tmp_path / "out")
  unsigned(tmp_path / "out")
  shutil.rmtree(tmp_path / "out" / "train" / "dog")
  with pytest.raises(UserError, match=r"is damaged \(.*dog"):
    Learner.load(tmp_path / "out")


def test_an_export_is_continued(loaded, tmp_path):
  learner, known = loaded
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
