"""What a process makes of the library of kernels, or of its absence."""

import pytest

from mnemonics_jax.cpu_conv import calls
from mnemonics_jax.errors import UserError


@pytest.fixture
def anew(monkeypatch, tmp_path):
  """Chooses as a process does that has just begun."""

  def choose(wish):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(calls.VARIABLE, wish)
    return calls._choose.__wrapped__()

  return choose


def test_xla_asks_no_compiler(anew, compiler):
  assert anew("xla") == calls.Choice("xla")
  assert compiler.builds == 0


@pytest.mark.parametrize("wish", ["auto", ""])
def test_failure_is_said_and_xla_does_it(anew, compiler, wish):
  compiler.does("exit 1")
  chosen = anew(wish)
  assert chosen.name == "xla" and not chosen.is_native
  assert "failed" in chosen.note and "left to XLA" in chosen.note


def test_what_cannot_be_loaded_is_left_to_xla(anew, compiler):
  chosen = anew("auto")  # The made-up compiler makes no library at all.
  assert chosen.name == "xla" and "cannot be loaded" in chosen.note


def test_whoever_insists_gets_an_error(anew, compiler):
  compiler.does("exit 1")
  with pytest.raises(UserError, match=r"=native, but .* failed.*install g"):
    anew("native")


def test_another_wish_is_refused(anew):
  with pytest.raises(UserError, match="=fast is none of auto, native, xla"):
    anew("fast")


def test_what_is_known_is_said_once(monkeypatch):
  said = calls.Choice("xla", "no compiler, so XLA does it.")
  monkeypatch.setattr(calls, "_choose", lambda: said)
  monkeypatch.setattr(calls, "_SAID", type(calls._SAID)())
  assert [calls.news(), calls.news()] == [said.note, None]
