"""CIFAR-100 that is not there: what is said, and fetching it."""

import time

import pytest
from support import data_files

from mnemonics_jax import data
from mnemonics_jax.data import cifar100
from mnemonics_jax.data.dataset import data_directory


def test_nothing_found_is_one_message_at_once(tmp_path):
  code = """
import sys
from mnemonics_jax import data
try:
  data.load("cifar100", sys.argv[1])
except data.DataError as error:
  print(error)
for name in ("tensorflow", "tensorflow_datasets", "sklearn"):
  assert name not in sys.modules, name
"""
  result = data_files.run_python("-c", code, tmp_path)
  assert result.returncode == 0, result.stderr
  for part in (
    f"`data_dir={tmp_path}`",
    "cifar-100-python.tar.gz",
    "array_record",
    "`download`",
    "MNEMONICS_DATA_DIR",
    "mnemonics_jax.data.prepare",
  ):
    assert part in result.stdout
  start = time.perf_counter()
  with pytest.raises(data.DataError, match="does not exist"):
    data.load("cifar100", tmp_path / "none")
  assert time.perf_counter() - start < 0.5


def test_directory_from_environment(tmp_path, monkeypatch):
  monkeypatch.setenv("MNEMONICS_DATA_DIR", str(tmp_path / "environment"))
  assert data_directory(None) == tmp_path / "environment"
  assert data_directory("") == tmp_path / "environment"
  assert data_directory(tmp_path / "flag") == tmp_path / "flag"
  monkeypatch.delenv("MNEMONICS_DATA_DIR")
  monkeypatch.setenv("HOME", str(tmp_path))
  assert data_directory(None) == tmp_path / "tensorflow_datasets"


def test_download_says_what_is_missing(tmp_path, monkeypatch):
  monkeypatch.setattr(cifar100.importlib.util, "find_spec", lambda _: None)
  with pytest.raises(data.DataError, match=r"pip install -e '\.\[tf\]'"):
    data.load("cifar100", tmp_path, download=True)


def test_download_without_network_ends_soon(tmp_path, monkeypatch):
  monkeypatch.setattr(cifar100.importlib.util, "find_spec", lambda _: True)
  # Nothing listens on port 9 of this machine.
  monkeypatch.setattr(cifar100, "URL", "http://127.0.0.1:9/cifar.tar.gz")
  start = time.perf_counter()
  with pytest.raises(data.DataError, match="cannot be reached"):
    data.load("cifar100", tmp_path, download=True)
  assert time.perf_counter() - start < 20


def test_download_that_fails_or_stalls_is_one_message(tmp_path, monkeypatch):
  monkeypatch.setattr(cifar100.importlib.util, "find_spec", lambda _: True)
  monkeypatch.setattr(cifar100, "_FETCH", "raise OSError('disk full')")
  with pytest.raises(data.DataError, match=r"`download`: .*disk full") as error:
    data.load("cifar100", tmp_path, download=True)
  assert "Traceback" not in str(error.value)
  monkeypatch.setattr(cifar100, "_FETCH", "import time; time.sleep(60)")
  monkeypatch.setattr(cifar100, "_STALLED_SECONDS", 1)
  with pytest.raises(data.DataError, match="stalled"):
    data.load("cifar100", tmp_path, download=True)


def test_download_is_read_like_any_other(
  tmp_path, prepared, monkeypatch, expected
):
  monkeypatch.setattr(cifar100.importlib.util, "find_spec", lambda _: True)
  fetch = f"""
import shutil, sys
shutil.copytree({str(prepared)!r}, sys.argv[2], dirs_exist_ok=True)
"""
  monkeypatch.setattr(cifar100, "_FETCH", fetch)
  dataset = cifar100.load(
    tmp_path / "new",
    download=True,
    cache_dir=tmp_path / "cache",
    per_class=data_files.PER_CLASS,
  )
  data_files.assert_same_arrays(dataset, expected)
