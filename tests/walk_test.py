"""How deep a command is: own frames from it to the network. They should not grow."""

from pathlib import Path
import traceback

import jax
import pytest
from support import command

from mnemonics_jax.nn import networks

ROOT = Path(__file__).parents[1]
OWN = tuple(f"{ROOT / room}/" for room in ("mnemonics_jax", "experiments"))
SMALL = (
  "--preset=smoke", "--phases=1", "--images_per_class=4", "--memory=per_class:2",
  "--base_epochs=1", "--epochs=1", "--finetune=all", "--finetune_epochs=1",
  "--meta_epochs=1", "--batch_size=8", "--net=resnet8", "--notensorboard",
)  # fmt: skip


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
  """The own frames of each call of the network in a small run of digits."""
  found, call = [], networks.ResNet.__call__

  def apply(*arguments, **options):
    stack = traceback.extract_stack()[:-1]
    found.append([f for f in stack if f.filename.startswith(OWN)])
    return call(*arguments, **options)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(networks.ResNet, "__call__", apply)
    jax.clear_caches()  # A program that is there already calls no network.
    home = tmp_path_factory.mktemp("home")
    done = command.call("digits", *SMALL, cwd=home, train=True)
  assert not done.code, done.err
  return found


@pytest.mark.parametrize(
  "function, frames, files",
  [
    ("train_model", 12, 9),
    ("finetune", 12, 9),
    ("choose", 12, 9),
    ("hypergradient", 17, 11),
  ],
)
def test_few_frames_lead_to_the_network(walks, function, frames, files):
  """Through a function that only this path has."""
  of = [walk for walk in walks if function in [frame.name for frame in walk]]
  for walk in of:
    places = [f"{Path(f.filename).name}:{f.name}" for f in walk]
    assert len(places) <= frames, "\n".join(places)
    assert len({f.filename for f in walk}) <= files, "\n".join(places)
  assert of
