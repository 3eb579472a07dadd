"""The same settings have the same directory, if it can be one."""

import dataclasses
from pathlib import Path

import pytest

from experiments import workdirs
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import Settings, presets, setting
from mnemonics_jax.settings import settings as settings_lib

DIGITS = Settings("digits", "smoke", **presets.of("digits")["smoke"])


def name(settings=DIGITS, data=17, root="runs"):
  return workdirs.default(settings, data, root)


def test_names_tell_what_is_run():
  assert name().parent == Path("runs")
  assert name().name.startswith("digits_lucir_mnemonics_per_class-5_n5_")
  images = Settings(
    "folder", "short", **presets.of("folder")["short"], data="x"
  )
  assert name(images, root="elsewhere").parent == Path("elsewhere")
  coded = dataclasses.replace(DIGITS, codec="jpeg:75")
  assert "_per_class-5_jpeg-75_n5_" in name(coded).name
  assert name() == name()  # Runs must be found again.


def test_a_setting_that_comes_later_renames_nothing():
  """Only what differs from the defaults is in a name."""

  @dataclasses.dataclass(frozen=True)
  class Later(Settings):
    depth: int = setting("Training", 3)

  later = Later("digits", "smoke", **presets.of("digits")["smoke"])
  assert name(later) == name()
  assert name(dataclasses.replace(later, depth=4)) != name()


def test_whatever_changes_numbers_changes_the_name(monkeypatch):
  for change in [
    dict(epochs=3),
    dict(dtype="bfloat16"),
    dict(codec="jpeg:75"),
    dict(exemplar_chunk=2),
    dict(less_forget=4.0),
    dict(seeds=(1,)),
  ]:
    assert name(dataclasses.replace(DIGITS, **change)) != name()
  stored = dataclasses.replace(DIGITS, remat=True)  # The numbers are the same.
  assert name(stored) == name()
  assert name(data=18) != name()
  before = name()
  monkeypatch.setattr(settings_lib, "NUMERICS", settings_lib.NUMERICS + 1)
  assert name() != before


def test_a_fresh_start_leaves_the_old_directory(tmp_path):
  out = tmp_path / "out"
  assert workdirs.fresh(out) == out
  out.mkdir()
  assert workdirs.fresh(out) == tmp_path / "out-2"
  (tmp_path / "out-2").mkdir()
  assert workdirs.fresh(out) == tmp_path / "out-3"


def test_what_cannot_be_a_directory_is_refused(tmp_path):
  (tmp_path / "file").write_text("")
  workdirs.check("root", tmp_path / "new" / "deep")
  for path, problem in {
    "file": "file is not a directory",
    "file/below": "file is not a directory",
    "x" * 300: "File name too long",
  }.items():
    refused = rf"`root=.*` cannot be used \(.*{problem}\)"
    with pytest.raises(UserError, match=refused):
      workdirs.check("root", tmp_path / path)


def test_one_folder_is_one_data_set_however_it_is_written(tmp_path):
  """The checksum tells data apart; config.json knows that they may lie elsewhere."""
  plain = Settings("folder", "short", data="pets")
  for place in ("./pets", "/somewhere/pets"):
    other = dataclasses.replace(plain, data=place)
    assert name(other) == name(plain)
  # A run goes on that was begun when the name depended on the place.
  former = tmp_path / plain.name(17, with_place=True)
  assert former.name != name(plain).name
  former.mkdir()
  assert name(plain, root=str(tmp_path)) == former
