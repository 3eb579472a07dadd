"""Photographs that stream: no number tells it, nor that a run was killed.

`MNEMONICS_DATA_DIR` may name a folder of real ones, some classes of ImageNet as
`train/<wnid>/` and `val/<wnid>/`; without it small ones are made.
"""

import os
from pathlib import Path
import signal
import subprocess
import sys

import numpy as np
from PIL import Image
import pytest
from support import compilations, imagenet, interrupted

from mnemonics_jax.data.imagenet import all_wnids
from mnemonics_jax.runs import artifact

ROOT = Path(__file__).parents[2]
METHODS = {
  "lwf": ["--method=lwf", "--exemplars=herding"],
  "icarl": ["--method=icarl", "--exemplars=herding"],
  "bic": ["--method=bic", "--exemplars=herding"],
  "lucir": ["--method=lucir", "--exemplars=herding"],
  "mnemonics": ["--method=lucir", "--exemplars=mnemonics"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
  """Where commands run; what one compiles the next one finds."""
  home = tmp_path_factory.mktemp("home")
  compilations.share_kernels(home / "cache")
  return home


@pytest.fixture(scope="module")
def photographs(home):
  """A folder with classes of ImageNet."""
  given = Path(os.environ.get("MNEMONICS_DATA_DIR", home / "none"))
  if (given / "train").is_dir():
    return given
  rng = np.random.default_rng(0)
  for wnid in all_wnids()[:4]:
    for split, count in (("train", 40), ("val", 5)):
      place = home / "made" / split / wnid
      place.mkdir(parents=True)
      for i in range(count):
        small = rng.integers(0, 256, (5, 4, 3), np.uint8)
        large = Image.fromarray(small).resize((90, 80))
        (place / f"{wnid}_{i}.JPEG").write_bytes(imagenet.encode(large))
  return home / "made"


@pytest.fixture(scope="module")
def prepared(home, photographs):
  """The same photographs as a part of ImageNet."""
  flags = f"--source={photographs}", f"--data_dir={home / 'data'}", "--reduced"
  prepare = "mnemonics_jax.data.prepare", "--dataset=imagenet"
  with _start([*prepare, *flags], home) as process:
    _end(process)
  return home / "data"


def _start(command, home):
  return subprocess.Popen(
    [sys.executable, "-m", *command],
    cwd=home,
    env=os.environ
    | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(home / "cache")},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def _end(process):
  output, _ = process.communicate(timeout=1200)
  assert process.returncode == 0, output
  return output


def _learn(home, name, command):
  """What a run leaves that nobody disturbs."""
  with _start([*command, f"--workdir={name}"], home) as process:
    _end(process)
  return interrupted.files(home / name)


def _kill(home, name, command):
  """What a run leaves that was killed amid an epoch, with old exemplars in it."""
  often = [*command, f"--workdir={name}", "--checkpoint_every=0"]
  with _start(often, home) as process:
    said = []
    while not said or "in phase 1, stage train" not in said[-1]:
      said.append(process.stdout.readline())
      assert said[-1], "".join(said)
    process.kill()
  assert process.returncode == -signal.SIGKILL
  parts = [
    path
    for path in interrupted.checkpoints(home / name)
    if path.name.startswith("phase_01_part_") and not path.suffix
  ]
  tree, info = artifact.restore(parts[-1])
  *_, epoch, step = [tree["running"][at] for at in sorted(tree["running"])]
  assert (info["stage"], epoch) == ("train", 0) and step > 0
  with _start(often, home) as process:
    assert "Continuing seed 0 in phase 1, stage train." in _end(process)
  return interrupted.files(home / name)


SMOKE = "--preset=smoke", "--phases=1", "--notensorboard"


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_folder_that_streams(home, photographs, method):
  """As one in memory does it, also if it was killed."""
  command = ["experiments.folder", f"--data={photographs}", *SMOKE]
  command += METHODS[method]
  names = [f"{method}_{kind}" for kind in ("resident", "streamed", "killed")]
  resident = _learn(home, names[0], [*command, "--stream=never"])
  assert len(resident) == 5  # Results; of both phases arrays and a checkpoint.
  assert _learn(home, names[1], [*command, "--stream=always"]) == resident
  assert _kill(home, names[2], [*command, "--stream=always"]) == resident


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_prepared_imagenet(home, prepared, method):
  """Whatever the number of workers, and also if it was killed."""
  command = ["experiments.imagenet", "--full", f"--data_dir={prepared}", *SMOKE]
  command += METHODS[method]
  names = [f"{method}_of_imagenet_{kind}" for kind in ("alone", "killed")]
  whole = _learn(home, names[0], [*command, "--workers=0"])
  assert len(whole) == 5
  assert _kill(home, names[1], [*command, "--workers=2"]) == whole
