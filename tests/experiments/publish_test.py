"""`experiments.publish`: a model of phase 0 for everybody."""

from support import command, finished_run, tiny
from support.command import assert_refused

from mnemonics_jax import runs


def publish(home, *arguments):
  return command.call("publish", *map(str, arguments), cwd=home)


def test_a_model_is_published_and_begun_with(tmp_path):
  config, stream = tiny.setup(
    finished_run.METHOD, split=(3, 1), **finished_run.OPTIONS
  )
  models = tmp_path / "models"
  runs.run(config, stream, tmp_path / "run", base_models=models)
  (model,) = models.iterdir()
  done = publish(tmp_path, model, "run", "public/tiny")
  assert not done.code, done.err
  assert "3 classes of tiny (head " in done.out
  assert done.out.endswith("in public/tiny.\n")
  again = publish(tmp_path, model, "run", "public/tiny")
  assert_refused(again, "public/tiny exists")
  # Settings are named by what it is, wherever it lies.
  from mnemonics_jax.settings import Settings

  name = lambda path: Settings(
    "tiny", "short", base_model=str(tmp_path / path)
  ).identity()
  (tmp_path / "public/tiny").rename(tmp_path / "moved")
  there = name("moved")
  (tmp_path / "moved").rename(tmp_path / "again")
  assert there == name("again") and len(there["base_model"]) == 64


def test_mistakes(tmp_path):
  assert_refused(publish(tmp_path), "MODEL, RUN and DIR are needed")
  assert_refused(
    publish(tmp_path, "no_model", "no_run", "x"), "there is no base model"
  )
