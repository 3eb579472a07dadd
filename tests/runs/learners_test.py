"""Learners are saved and loaded; a finished run is a learner, too."""

import dataclasses
import errno
import json
import os
import shutil
from unittest import mock

from flax import linen
import jax
import numpy as np
import pytest
from support import finished_run, saved_learner
from support.saved_learner import images, pictures

from mnemonics_jax import Learner, UserError, registry
from mnemonics_jax.errors import DiskError
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.progress import ignore
from mnemonics_jax.runs import checkpoint, layout, learners
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
    patch.setattr(checkpoint, "_check_room", mock.Mock(side_effect=full))
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
  damaged = shutil.copytree(saved, tmp_path / "damaged")
  (damaged / "info.json").write_text("{}")
  with pytest.raises(UserError, match=r"is damaged .*info\.json changed"):
    Learner.load(damaged)


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
    for phase, record in enumerate(run["phases"]):
      learner, known = Learner.load(finished, seed=seed, phase=phase)
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
        (counts,) = read_phase_arrays(finished, seed, phase, name).values()
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
