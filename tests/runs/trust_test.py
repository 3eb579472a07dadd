"""Data, checkpoints and results are read, never run.

Whoever made a data set, an archive or a work directory may mean harm: nothing
in them is executed.
"""

import ast
import contextlib
import hashlib
import json
import os
from pathlib import Path
import pickle
import re
import sys

import numpy as np
import pytest
from support import data_files, report_fixture

from mnemonics_jax import data, report
from mnemonics_jax.data import cifar100
from mnemonics_jax.runs import artifact

ROOT = Path(__file__).parents[2]


# Code in data.


class Malicious:
  """Its pickle is a program that leaves a mark."""

  def __init__(self, marker: Path):
    self.command = f"touch {marker}"

  def __reduce__(self):
    return os.system, (self.command,)


class Watch:
  """Python's own record of what is unpickled or started."""

  events = frozenset(
    {"pickle.find_class", "os.system", "subprocess.Popen", "os.exec"}
  )

  def __init__(self):
    self.seen = None
    sys.addaudithook(self)

  def __call__(self, event, _):
    if self.seen is not None and event in self.events:
      self.seen.append(event)

  @contextlib.contextmanager
  def __getitem__(self, seen):
    self.seen = seen
    try:
      yield
    finally:
      self.seen = None


WATCH = Watch()  # Hooks stay for ever: one for all tests.


def official_directory(path, attack):
  data_files.write_official(path / "cifar", data_files.cifar_arrays())
  (path / "cifar/train").write_bytes(pickle.dumps(attack, 2))
  return lambda: cifar100.read_official(
    path / "cifar", md5=data_files.md5_sums(path / "cifar")
  )


def official_archive(path, attack):
  official_directory(path, attack)
  data_files.write_archive(path / "cifar.tar.gz", path / "cifar")
  md5 = data_files.md5_sums(path / "cifar")
  return lambda: cifar100.read_official(path / "cifar.tar.gz", md5=md5)


def cached_arrays(path, attack):
  images = data_files.write_folder(path / "images")
  load = lambda: data.load(
    "folder", images, image_size=8, cache_dir=path / "cache"
  )
  load()
  (entry,) = (path / "cache").iterdir()
  np.save(entry / "train_labels.npy", np.array([attack], object))
  return load


def exemplars_of_a_run(path, attack):
  run = report_fixture.write(path / "run", groups=(1, 1), seeds=(0,))
  np.savez(
    run / "seed_0/phase_01.npz", **{"memory/images": np.array([attack], object)}
  )
  return lambda: report.load_run(run).arrays(0, 1)


def arrays_of_a_checkpoint(path, attack):
  """Every file of arrays is the attack, and the checksums say so, too."""
  saved = path / "checkpoint"
  artifact.save(saved, {"a": np.arange(3.0)})
  manifest = json.loads((saved / "manifest.json").read_text())
  for name in manifest["files"]:
    if name.startswith("arrays"):
      (saved / name).write_bytes(pickle.dumps(attack))
      digest = hashlib.sha256((saved / name).read_bytes()).hexdigest()
      manifest["files"][name] = digest
  (saved / "manifest.json").write_text(json.dumps(manifest))
  return lambda: artifact.restore(saved)


@pytest.mark.parametrize(
  "plant",
  [
    official_directory,
    official_archive,
    cached_arrays,
    exemplars_of_a_run,
    arrays_of_a_checkpoint,
  ],
)
def test_pickles_are_not_run(tmp_path, plant):
  marker = tmp_path / "marker"
  attack = Malicious(marker)
  with WATCH[seen := []]:
    pickle.loads(pickle.dumps(attack))
  assert marker.exists() and seen  # It works, and would be noticed.
  marker.unlink()
  load = plant(tmp_path, attack)
  with WATCH[seen := []], contextlib.suppress(Exception):
    load()
  assert not marker.exists() and not seen


@pytest.mark.parametrize(
  "attack",
  [
    b"cposix\nsystem\n(U\x04truetR.",
    b"cbuiltins\neval\n(U\x011tR.",
    b"c__builtin__\nexec\n(U\x011tR.",
    b"cnumpy\nload\n(U\x01xtR.",
    b"cnumpy.core.multiarray\nscalar\n.",
    b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dumps\x93.",
    b"Pid\n.",
  ],
)
def test_the_unpickler_knows_three_names(attack):
  with pytest.raises(pickle.UnpicklingError):
    cifar100.unpickle(attack)


def test_a_tfds_directory_does_not_choose_what_is_imported(
  tmp_path, monkeypatch
):
  (tmp_path / "evil_feature.py").write_text("raise SystemExit('imported')")
  monkeypatch.syspath_prepend(tmp_path)
  directory = tmp_path / "cifar100/3.0.2"
  data_files.write_tfds(directory, data_files.cifar_arrays())
  features = {"pythonClassName": "evil_feature.Evil", "featuresDict": {}}
  (directory / "features.json").write_text(json.dumps(features))
  cifar100.load(
    tmp_path, cache_dir=tmp_path / "cache", per_class=data_files.PER_CLASS
  )
  assert "evil_feature" not in sys.modules


# Modules that run what they read, and calls that may.
RUNNING = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
UNPACKING = {"extract", "extractall", "unpack_archive"}


def dangers(source: str) -> set[str]:
  found = set()
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      found |= RUNNING & {name.name.split(".")[0] for name in node.names}
    if isinstance(node, ast.ImportFrom):
      found |= RUNNING & {(node.module or "").split(".")[0]}
    if not isinstance(node, ast.Call):
      continue
    call = ast.unparse(node.func)
    if call in ("eval", "exec", "compile", "yaml.load", "torch.load"):
      found.add(call)
    if isinstance(node.func, ast.Attribute) and node.func.attr in UNPACKING:
      found.add(call)
    text = ast.unparse(node)
    if call in ("np.load", "NpzFile") and "allow_pickle=False" not in text:
      found.add(call)
  return found


def test_no_source_uses_what_could_run_or_unpack_data():
  assert dangers(
    "import pickle; eval(a); t.extractall(); np.load(f); NpzFile(f)"
  ) == {
    "pickle", "eval", "t.extractall", "np.load", "NpzFile",
  }  # fmt: skip
  paths = [
    path
    for package in ("mnemonics_jax", "experiments", "benchmarks")
    for path in (ROOT / package).rglob("*.py")
  ]
  assert len(paths) > 50
  found = {str(p.relative_to(ROOT)): dangers(p.read_text()) for p in paths}
  assert {path: what for path, what in found.items() if what} == {
    # Has the unpickler of the test above.
    "mnemonics_jax/data/cifar100.py": {"pickle"},
  }


# Packages.


def test_the_audited_set_is_exact():
  """`make audit` looks up these versions and no others."""
  lines = (ROOT / "requirements.txt").read_text().splitlines()
  lines += (ROOT / "requirements-dev.txt").read_text().splitlines()
  loose = [
    line
    for line in lines
    if line and not re.match(r"#|-r |[\w.-]+(\[\w+\])?==[\w.]+($| ;)", line)
  ]
  assert not loose
  assert "audit:" in (ROOT / "Makefile").read_text()
