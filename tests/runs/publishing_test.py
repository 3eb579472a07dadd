"""What may be published, and where to."""

import dataclasses
import json

import pytest
from support import tiny

from mnemonics_jax import UserError, methods, runs
from mnemonics_jax.runs import layout, published, publishing

QUICK = dataclasses.replace(tiny.SCHEDULE, epochs=1)


def _run(home, method=methods.LUCIR(), seed=0, **options):
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
  run, model = _run(tmp_path / "a")
  _, other = _run(tmp_path / "b", seed=7)
  with pytest.raises(UserError, match="no seed of"):
    publishing.publish(other, run, tmp_path / "to")
  with pytest.raises(UserError, match="no seed of"):
    publishing.publish(model, tmp_path / "nowhere", tmp_path / "to")
  (tmp_path / "there").mkdir()
  with pytest.raises(UserError, match="exists"):
    publishing.publish(model, run, tmp_path / "there")
  assert not (tmp_path / "to").exists()
  about = publishing.publish(model, run, tmp_path / "to")
  assert published.about(tmp_path / "to") == about
  assert about["accuracy"].keys() == {"head", "nme"}


def test_what_a_memory_has_decided_is_not_for_others(tmp_path):
  run, model = _run(tmp_path, methods.BiC())
  with pytest.raises(UserError, match="holds images out for a memory"):
    publishing.publish(model, run, tmp_path / "to")


def test_a_model_that_was_tuned_afterwards_is_not_what_a_run_began_with(
  tmp_path,
):
  run, model = _run(tmp_path, finetune="all")
  with pytest.raises(UserError, match="one that fine-tunes whole models"):
    publishing.publish(model, run, tmp_path / "to")


@pytest.mark.parametrize("lacking", ["results", "numerics", "data"])
def test_a_run_of_a_version_that_said_less_is_refused(tmp_path, lacking):
  run, model = _run(tmp_path)
  config = layout.read_config(run)
  del config[lacking]
  layout.write_config(run, config)
  with pytest.raises(
    UserError, match=rf"config\.json lacks {lacking}"
  ) as error:
    publishing.publish(model, run, tmp_path / "to")
  assert error.value.field == "run" and not (tmp_path / "to").exists()


def test_a_run_whose_log_lacks_moments_is_refused(tmp_path):
  run, model = _run(tmp_path)
  log = layout.metrics_path(run)
  lines = [json.loads(line) for line in log.read_text().splitlines()]
  for line in lines:
    line.pop("moments", None)
  log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
  with pytest.raises(UserError, match="has no numbers of phase 0"):
    publishing.publish(model, run, tmp_path / "to")
