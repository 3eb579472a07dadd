"""Programs are found again, and a missing cache stops nobody."""

import os
import zlib

import jax
from jax.experimental.compilation_cache import compilation_cache
import jax.numpy as jnp
import pytest

from experiments import compile_cache

pytestmark = pytest.mark.filterwarnings("error")
_CHOSEN = "jax_compilation_cache_dir"


@pytest.fixture(autouse=True)
def nothing_chosen():
  before = getattr(jax.config, _CHOSEN)
  jax.config.update(_CHOSEN, None)
  compilation_cache.reset_cache()
  yield
  jax.config.update(_CHOSEN, before)
  compilation_cache.reset_cache()


def _compile():
  """Events of compiling one program anew."""
  events, listener = [], lambda name, **_: events.append(name)
  jax.monitoring.register_event_listener(listener)
  try:
    with compile_cache.kept():
      jax.clear_caches()
      jax.jit(lambda x: jnp.sin(x) * 3)(jnp.ones(5)).block_until_ready()
  finally:
    jax.monitoring.unregister_event_listener(listener)
  return events


def test_the_second_start_finds_what_the_first_compiled(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  hit = "/jax/compilation_cache/cache_hits"
  least = jax.config.jax_persistent_cache_min_compile_time_secs
  assert hit not in _compile()  # It compiles in no time, and is kept.
  assert any((tmp_path / "mnemonics_jax/xla").iterdir())
  assert hit in _compile()
  # Afterwards nothing is kept.
  assert getattr(jax.config, _CHOSEN) is None
  assert jax.config.jax_persistent_cache_min_compile_time_secs == least


def test_a_directory_that_was_chosen_is_left_alone(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "unused"))
  jax.config.update(_CHOSEN, str(tmp_path / "chosen"))
  _compile()
  assert getattr(jax.config, _CHOSEN) == str(tmp_path / "chosen")
  assert not (tmp_path / "unused").exists()


def test_without_a_place_everything_is_compiled(tmp_path, monkeypatch):
  (tmp_path / "file").write_text("")
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
  _compile()
  assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "other"])
def test_a_damaged_entry_is_replaced(tmp_path, monkeypatch, capfd, damage):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  hit = "/jax/compilation_cache/cache_hits"
  _compile()
  entries = sorted((tmp_path / "mnemonics_jax/xla").glob("*-cache"))
  whole = {path: path.read_bytes() for path in entries}
  for path, content in whole.items():
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(
      {
        "truncated": content[: len(content) // 2],
        "empty": b"",
        "flipped": bytes(flipped),
        "other": zlib.compress(b"not a program at all"),
      }[damage]
    )
  assert hit not in _compile()
  assert capfd.readouterr() == ("", "")
  assert all(path.stat().st_size > 0 for path in entries)
  assert hit in _compile()


def test_a_directory_of_others_is_not_used(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  hit, path = "/jax/compilation_cache/cache_hits", tmp_path / "mnemonics_jax"
  _compile()
  assert [oct(p.stat().st_mode & 0o777) for p in (path, path / "xla")] == [
    *("0o700", "0o700")
  ]
  capsys.readouterr()
  for folder in (path, path / "xla"):
    folder.chmod(0o777)
    before = sorted(path.rglob("*"))
    assert hit not in _compile()
    assert sorted(path.rglob("*")) == before
    told = capsys.readouterr().err
    assert told.startswith(f"Note: others may write to {folder}, so compiled")
    assert told.endswith("; remove it, and one of your own is made.\n")
    assert told.count("\n") == 1
    folder.chmod(0o700)
  someone_else = os.geteuid() + 1
  monkeypatch.setattr(os, "geteuid", lambda: someone_else)
  assert hit not in _compile()
  assert "belongs to another user" in capsys.readouterr().err
