"""The registry of data sets: one line each, read by everybody."""

import importlib
import inspect
from pathlib import Path
import subprocess
import sys

import pytest

from mnemonics_jax import data

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", data.SOURCES)
def test_every_source_takes_what_load_gives(name):
  source = data.SOURCES[name]
  module = importlib.import_module(source.module)
  loader = getattr(module, source.load)
  parameters = list(inspect.signature(loader).parameters.values())
  first, *others = parameters
  assert first.name == "data_dir"
  assert all(p.kind is p.KEYWORD_ONLY for p in others)
  assert {"cache_dir", "report", "share"} <= {p.name for p in others}
  assert all(p.default is not p.empty for p in others)
  kinds = {p.name: type(p.default) for p in others} | {"data_dir": str}
  assert source.streams == ("stream" in kinds)
  for option, words in source.options.items():
    assert (words.kind, bool(words.help)) == (kinds[option], True)


def test_people_know_data_sets_by_their_titles():
  assert data.sources.title_of("cifar100") == "CIFAR-100"
  assert data.sources.title_of("my pets") == "my pets"


def test_a_new_source_is_a_module_and_a_line(tmp_path, monkeypatch):
  (tmp_path / "doubled.py").write_text(
    "import dataclasses\n"
    "from mnemonics_jax.data import digits\n"
    "def load(data_dir=None, *, cache_dir, report, share, factor=1):\n"
    "  found = digits.load()\n"
    "  names = tuple(factor * name for name in found.class_names)\n"
    "  return dataclasses.replace(found, name='doubled', class_names=names)\n"
  )
  monkeypatch.syspath_prepend(tmp_path)
  source = data.Source("doubled", "Doubled", "digits, called twice")
  monkeypatch.setitem(data.SOURCES, "doubled", source)
  assert data.load("doubled", factor=2).class_names[:2] == ("00", "11")
  with pytest.raises(data.DataError, match="doubled has factor"):
    data.load("doubled", times=2)


def test_names_are_known_without_jax_and_without_the_loaders():
  code = (
    "import sys; import mnemonics_jax.data as data; print(*data.SOURCES);"
    "data.ClassStream, data.PhaseData, data.StreamShape, data.stream;"
    "modules = {source.module for source in data.SOURCES.values()};"
    "print(sorted({'jax', 'sklearn', *modules} & set(sys.modules)))"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
  )
  names, loaded = done.stdout.splitlines()
  assert names.split() == list(data.SOURCES)
  assert loaded == "[]", done.stderr
