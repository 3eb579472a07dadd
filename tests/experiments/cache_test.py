"""Caches can be seen and removed; nothing else goes with them."""

from support import command


def test_it_lists_what_is_there_and_removes_it_when_told(tmp_path):
  kept = tmp_path / "cache" / "mnemonics_jax" / "xla"
  kept.mkdir(parents=True)
  (kept / "program").write_bytes(b"x" * 1_500_000)
  (tmp_path / "cache" / "of_others").write_text("precious")
  shown = command.call("cache", cwd=tmp_path)
  assert not shown.code and "xla" in shown.out and "1.5 MB" in shown.out
  assert kept.exists()
  removed = command.call("cache", "--clear", cwd=tmp_path)
  assert not removed.code and removed.out.endswith("Removed.\n")
  assert not kept.exists()
  assert (tmp_path / "cache" / "of_others").exists()
  assert "0.0 MB" in command.call("cache", "--clear", cwd=tmp_path).out
