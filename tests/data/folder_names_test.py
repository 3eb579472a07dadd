"""Every class gets a folder that is safe anywhere."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from mnemonics_jax.data.folder import folder_names


@pytest.mark.parametrize(
  ("name", "folder"),
  [
    ("cat", "cat"),
    ("Großer Hund 2.0", "Großer Hund 2.0"),
    ("..", "%2E%2E"),
    ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
    ("/root", "%2Froot"),
    ("C:\\x", "C%3A%5Cx"),
    (".hidden", "%2Ehidden"),
    ("end.", "end%2E"),
    (" padded ", "%20padded%20"),
    ("100%", "100%25"),
    ("a\0b\n", "a%00b%0A"),
    ("NUL", "%4EUL"),
    ("com1.txt", "%63om1.txt"),
    ("", "_"),
    (7, "7"),
    (("a", 1), "('a', 1)"),
    ("\udcff", "%ED%B3%BF"),
  ],
)
def test_by_hand(name, folder):
  assert folder_names([name]) == [folder]


def test_folders_differ_where_names_do_not():
  names = ["cat", "CAT", 1, "1", "cat~2"]
  assert folder_names(names) == ["cat", "CAT~2", "1", "1~2", "cat%7E2"]


@given(st.lists(st.text(), unique=True, max_size=5))
def test_any_texts(names):
  folders = folder_names(names)
  assert len({folder.casefold() for folder in folders}) == len(names)
  for folder in folders:
    assert folder.isprintable() and 0 < len(folder.encode()) < 120
    assert not set(folder) & set('/\\:*?"<>|') and folder[0] != "."


def test_long_names_keep_their_beginning():
  first, second = folder_names(["ü" * 300, "ü" * 299 + "x"])
  assert first != second and first.startswith("üüü")
  assert len(first.encode()) <= 100
