"""A base model that runs share changes none of their numbers."""

import dataclasses

import jax
import numpy as np
import pytest
from support import damage, interrupted, tiny

from mnemonics_jax import methods
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.data.images import Resident, Stored
from mnemonics_jax.errors import DiskError, UserError
from mnemonics_jax.memory import PerClass
from mnemonics_jax.phase import Phase, Stage, begin_run, train_model
from mnemonics_jax.runs import base_models, checkpoint


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
def phase():
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


def test_a_model_that_is_there_is_taken(tmp_path, phase):
  kept = jax.tree.map(lambda x: x + 1, phase.state.variables)
  checkpoint.save(tmp_path / base_models._name(phase), kept)
  found = base_models.train(tmp_path, phase, Stage())
  assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), found, kept))


def test_a_damaged_model_is_told(tmp_path, phase):
  path = tmp_path / base_models._name(phase)
  checkpoint.save(path, phase.state.variables)
  damage.flip_a_bit(path)
  with pytest.raises(UserError, match=r"damaged .*; remove it, and") as error:
    base_models.train(tmp_path, phase, Stage())
  assert error.value.field == "base_models"


def test_a_model_that_cannot_be_written_is_told(tmp_path, phase, monkeypatch):
  monkeypatch.setattr(
    base_models, "train_model", lambda phase, _: phase.state.variables
  )
  (tmp_path / "file").write_text("")
  with pytest.raises(DiskError, match=r"`base_models=.*` cannot be written"):
    base_models.train(tmp_path / "file", phase, Stage())
