"""Runs and learners with a network of the user's own, on the command line."""

import importlib

from PIL import Image
import pytest
from support import command, saved_learner
from support.command import assert_refused
from support.saved_learner import images, pictures

from mnemonics_jax import (
  Learner,
  PerClass,
  data,
  methods,
  networks,
  phase,
  runs,
)
from mnemonics_jax.progress import ignore

# As a user would write it, in the directory where the commands are typed.
MODULE = """
from flax import linen as nn


class Features(nn.Module):
  width: int = 8

  @nn.compact
  def __call__(self, images, train):
    return nn.Dense(self.width)(images.reshape(len(images), -1) - 0.5)


small = Features()
wide = Features(9)
number = 3


def make():
  return Features(8)


def needs(width):
  return Features(width)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
  home = tmp_path_factory.mktemp("home")
  (home / "own_features.py").write_text(MODULE)
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(home)
    own = importlib.import_module("own_features")
  options = dict(saved_learner.QUICK, exemplars="herding")
  learner = Learner(own.Features(), memory="per_class:2", **options)
  known = learner.learn(None, *pictures(cat=4, dog=4), report=ignore)
  learner.save(known, home / "learner")
  stream = data.stream(data.load("digits"), phases=1, images_per_class=6)
  config = phase.Config(
    networks.Network(own.Features(), stream.image_shape),
    methods.LUCIR(),
    stream.shape,
    memory=PerClass(2),
    base=saved_learner.ONCE,
    train=saved_learner.ONCE,
  )
  runs.run(config, stream, home / "run")
  for name in ("cat", "owl"):
    folder = home / "data" / name
    folder.mkdir(parents=True)
    for number, image in enumerate(images(8, sum(map(ord, name)))):
      Image.fromarray(image).save(folder / f"{number}.png")
  return home


NETWORK = "--network=own_features:Features"


@pytest.mark.parametrize("name", ["Features", "small", "make"])
def test_images_are_shown_to_it(home, name):
  network = f"--network=own_features:{name}"
  done = command.call("predict", "learner", "data", network, cwd=home)
  assert not done.code, done.err
  assert "accuracy head" in done.out


def test_it_is_exported_and_asked_again(home):
  done = command.call("export", "run", "--to=out", NETWORK, cwd=home)
  assert not done.code, done.err
  done = command.call("predict", "out", "out/train", NETWORK, cwd=home)
  assert not done.code, done.err
  assert "of 20)" in done.out


def test_it_learns_more_classes(home):
  arguments = "--data=data", "--workdir=more", NETWORK
  done = command.call("extend", "run", *arguments, cwd=home, train=True)
  assert not done.code, done.err
  assert done.out.endswith("Report: more/report.html\n")


@pytest.mark.parametrize(
  "command_line",
  [
    "predict run data",
    "export run --to=x",
    "extend run --data=data --workdir=x",
  ],
)
def test_who_does_not_name_it_is_told_to(home, command_line):
  name, *arguments = command_line.split()
  done = command.call(name, *arguments, cwd=home)
  assert_refused(done, "own_features.Features", "again, as --network=...")


@pytest.mark.parametrize(
  ("given", "parts"),
  [
    ("Features", ["names nothing", "package.module:name"]),
    ("own_features:", ["names nothing"]),
    ("../own_features:Features", ["names nothing"]),
    ("no_module:Features", ["cannot be used", "No module named"]),
    ("own_features:none", ["cannot be used", "has no attribute 'none'"]),
    ("own_features:needs", ["cannot be used", "without arguments"]),
    ("own_features:number", ["cannot be used", "without arguments"]),
    ("builtins:dict", ["is a dict"]),
    ("own_features:wide", ["not the weights of this --network"]),
  ],
)
def test_what_is_no_network_of_it_is_refused(home, given, parts):
  done = command.call("predict", "run", "data", f"--network={given}", cwd=home)
  assert_refused(done, *parts)
