"""Where caches are."""

from pathlib import Path

from mnemonics_jax import user_cache


def test_it_is_where_systems_keep_caches(monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
  assert user_cache.default_directory() == Path("/somewhere/mnemonics_jax")
  monkeypatch.setenv("HOME", "/home/me")
  for unset in ("", None):  # An empty variable counts as none.
    if unset is None:
      monkeypatch.delenv("XDG_CACHE_HOME")
    else:
      monkeypatch.setenv("XDG_CACHE_HOME", unset)
    expected = Path("/home/me/.cache/mnemonics_jax")
    assert user_cache.default_directory() == expected
