"""`experiments.cifar`: what it learns, and from where."""

from pathlib import Path
import subprocess
import sys

from support import command, tiny

from experiments import cifar, running
from mnemonics_jax.data import cifar100

ROOT = Path(__file__).parents[2]


def test_missing_data_are_noticed_before_jax_is_imported(tmp_path):
  code = (
    "import sys\nfrom experiments import cifar\nfrom mnemonics_jax import data\n"
    f"try: data.load('cifar100', {str(tmp_path / 'nowhere')!r})\n"
    "except data.DataError: print('jax' in sys.modules)"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
  )
  assert done.stdout.strip() == "False", done.stderr


def test_missing_data_are_explained(tmp_path):
  done = command.call("cifar", "--data_dir=nowhere", cwd=tmp_path)
  command.assert_refused(done, "--data_dir=nowhere does not exist")


def test_flags_reach_the_data_and_the_run(tmp_path, monkeypatch):
  asked, ran = [], []
  small = tiny.dataset(classes=100, train=6, test=1)

  def load(data_dir, *, download, **_):
    asked.append((data_dir, download))
    return small

  monkeypatch.setattr(cifar100, "load", load)
  monkeypatch.setattr(running, "run", lambda *args, **_: ran.append(args))
  monkeypatch.setattr(running, "show", lambda *_: None)
  done = command.call(
    "cifar", "--data_dir=here", "--download", "--phases=10", "--preset=smoke",
    cwd=tmp_path,
  )  # fmt: skip
  assert not done.code, done.err
  assert asked == [("here", True)]
  ((settings, dataset, _),) = ran
  assert dataset == small and settings.dataset == "cifar100"
  assert (settings.phases, settings.net) == (10, "resnet8")


def test_the_paper_is_a_preset():
  paper = cifar.preset_values("paper", {})
  assert (paper["net"], paper["epochs"], paper["batch_size"]) == (
    *("resnet32", 160), 128
  )  # fmt: skip
