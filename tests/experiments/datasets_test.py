"""Flags of data sets, and what reaches their loaders."""

import re

from absl.testing import flagsaver
import pytest
from support import data_files

from experiments import datasets
from mnemonics_jax import data
from mnemonics_jax.data import DataError
from mnemonics_jax.settings import Settings, presets

FLAGS = datasets.FLAGS
KINDS = {"bool": bool, "int": int, "float": float, "string": str}


def test_every_option_is_a_flag_with_its_words():
  for name, source in data.SOURCES.items():
    for option, words in source.options.items():
      assert KINDS[FLAGS[option].flag_type()] is words.kind
      # Those with the same words are named together.
      assert re.search(
        rf"\b{name}\b[^:]*: {re.escape(words.help)}", FLAGS[option].help
      )


def test_data_sets_with_known_classes_are_offered():
  known = ["digits", "cifar100", "imagenet", "imagenet_subset"]
  assert FLAGS["dataset"].parser.enum_values == known
  assert (
    *("dataset", "data_dir", "download", "image_size", "decoder", "workers"),
  ) == datasets.KNOWN_FLAGS


def test_settings_and_flags_reach_the_loader(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  data_files.write_folder(tmp_path / "images")
  bad = tmp_path / "images/train/cat/text.png"
  bad.write_text("no image")
  values = presets.of("folder")["smoke"] | {"image_size": 9}
  settings = Settings("folder", "smoke", **values)
  with flagsaver.as_parsed(image_size="12"):  # Settings have decided.
    found = datasets.load(settings, str(tmp_path / "images"))
  assert found.image_shape == (9, 9, 3)
  strict = flagsaver.as_parsed(strict="true")
  with strict, pytest.raises(DataError, match=r"text\.png"):
    datasets.load(settings, str(tmp_path / "images"))


def test_the_directory_is_that_of_the_flag(tmp_path):
  settings = Settings("cifar100", "smoke", **presets.of("cifar100")["smoke"])
  given = flagsaver.as_parsed(data_dir=str(tmp_path / "nowhere"))
  with given, pytest.raises(DataError, match="nowhere` does not exist"):
    datasets.load(settings)
