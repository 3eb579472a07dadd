"""What a registry lists can be learned with: no other file knows its names."""

import json
import os
from pathlib import Path
import subprocess
import sys

from support import compilations

ROOT = Path(__file__).parents[2]

# A data set, a method, a network and an augmentation, in one file; then the lines
# that make them known.
OWN = '''
import dataclasses
from typing import ClassVar

from flax import linen as nn
import numpy as np

from mnemonics_jax import data, losses, methods, registry
from mnemonics_jax.nn import networks


def load(data_dir=None, *, bright=False, cache_dir, report, share):
  """Two stripes whose places tell the class."""
  labels = np.repeat(np.arange(4, dtype=np.int32), 12)
  images = np.full((48, 8, 8, 3), 200 if bright else 10, np.uint8)
  images[np.arange(48), :, 2 * labels] = 100
  images[:, 0, 0, 0] = np.arange(48)
  train, test = np.arange(48) % 3 > 0, np.arange(48) % 3 == 0
  return data.Dataset(
    "stripes", images[train], labels[train], images[test], labels[test],
    ("north", "east", "south", "west"), (0.5,) * 3, (0.25,) * 3,
  )


@dataclasses.dataclass(frozen=True)
class Replay(methods.Method):
  name: ClassVar[str] = "replay"

  def loss(self, student, teacher, labels, classes):
    loss = losses.cross_entropy(student.logits, labels, classes.seen)
    return loss, {"cross_entropy": loss}


class Flat(nn.Module):
  @nn.compact
  def __call__(self, images, train):
    return nn.Dense(6)(images.reshape(len(images), -1))


def flat(*, image_shape, **_):
  return networks.Network(Flat(), image_shape)


@dataclasses.dataclass(frozen=True)
class Darker:
  def __call__(self, key, images):
    return images - images // 8


DARKER = Darker()
data.SOURCES["stripes"] = data.Source(
  "own", "Stripes", "48 images of 8×8 pixels", classes=4,
  options={"bright": data.Option(bool, "on white instead of on black")},
)
registry.METHODS["replay"] = registry.MethodEntry(
  "own:Replay", "nothing but exemplars", "Replay", readout="head"
)
registry.NETWORKS["flat"] = registry.Entry("own:flat", "one layer")
registry.AUGMENTATIONS["darker"] = registry.Entry("own:DARKER", "an eighth less light")
'''  # fmt: skip


def _call(*arguments, cwd):
  compilations.share_kernels(cwd / ".cache")
  return subprocess.run(
    [
      sys.executable,
      "-c",
      "import sys; sys.argv[0] = 'mnemonics-jax';"
      "import own; from experiments.__main__ import main; main()",
      *arguments,
    ],
    cwd=cwd,
    env=os.environ | {"HOME": str(cwd), "PYTHONPATH": f"{ROOT}:{cwd}"},
    capture_output=True,
    text=True,
  )


def test_what_is_registered_is_in_help_flags_and_runs(tmp_path):
  (tmp_path / "own.py").write_text(OWN)
  done = _call("learn", "--help", cwd=tmp_path)
  text = " ".join(done.stdout.split())
  for words in (
    "stripes: 48 images of 8×8 pixels",
    "--[no]bright (off) stripes: on white instead of on black",
    "replay (head): nothing but exemplars",
    "flat: one layer",
    "darker: an eighth less light",
  ):
    assert words in text, done.stderr

  done = _call(
    *("learn", "--dataset=stripes", "--bright", "--method=replay"),
    *("--net=flat", "--augment=darker", "--exemplars=herding"),
    *("--preset=smoke", "--phases=1", "--memory=per_class:2"),
    *("--batch_size=8", "--notensorboard", "--workdir=out"),
    cwd=tmp_path,
  )
  assert done.returncode == 0, done.stderr
  config = json.loads((tmp_path / "out" / "config.json").read_text())
  chosen = {"dataset": "stripes", "method": "replay", "net": "flat"}
  assert chosen.items() <= config["settings"].items()
  assert config["settings"]["augment"] == "darker"
  # Unknown data sets are treated like CIFAR-100: presets need no line of theirs.
  assert config["settings"]["images_per_class"] == 50
  results = json.loads((tmp_path / "out" / "results.json").read_text())
  assert results["dataset"] == "stripes"
  assert sorted(results["class_names"]) == ["east", "north", "south", "west"]
  page = (tmp_path / "out" / "report.html").read_text()
  assert "Replay" in page or "replay" in page
