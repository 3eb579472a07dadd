"""Files are replaced as a whole or not at all."""

import pytest

from mnemonics_jax.runs import files


def test_text_comes_back(tmp_path):
  path = tmp_path / "a.txt"
  for text in ("Θ₀", "shorter"):
    files.write_text(path, text)
    assert path.read_text(encoding="utf-8") == text
  assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path):
  path = tmp_path / "a.txt"
  files.write_text(path, "old")
  with pytest.raises(OSError, match="full"), files.replacing(path) as file:
    file.write(b"ne")
    raise OSError("the disk is full")
  assert path.read_text() == "old"
  assert list(tmp_path.iterdir()) == [path]
