"""Class names as names of folders, whatever the names and the file system."""

from collections.abc import Iterable
import hashlib
from typing import Any

# What some file system, shell or address does not like in a name.
_ODD = frozenset('/\\:*?"<>|%~')
# Windows has devices of these names, whatever the suffix.
_PORTS = [f"{port}{n}" for port in ("com", "lpt") for n in range(10)]
_DEVICES = frozenset(("con", "prn", "aux", "nul", *_PORTS))
_LONGEST = 100  # Bytes; file systems allow 255, some of them after encoding.


def folder_names(names: Iterable[Any]) -> list[str]:
  """A folder for each class: its name where that is safe, else its like.

  Folders differ even where case does not count.

  >>> folder_names(["cat", "Cat", "../dog", 3, "", ".git", "a/b"])
  ['cat', 'Cat~2', '%2E.%2Fdog', '3', '_', '%2Egit', 'a%2Fb']

  Args:
    names: of all classes; what is no text is written as one.
  """
  folders, taken = [], set()
  for name in names:
    safe, number = _safe(str(name)), 1
    folder = safe
    while folder.casefold() in taken:
      number += 1
      folder = f"{safe}~{number}"
    taken.add(folder.casefold())
    folders.append(folder)
  return folders


def _safe(name):
  """One path component that stays where it is put."""
  last = len(name) - 1
  safe = "".join(
    _escaped(char)
    if char in _ODD
    or not char.isprintable()
    or (char == "." and i in (0, last))  # Hidden; or dropped by Windows.
    or (char == " " and i in (0, last))
    else char
    for i, char in enumerate(name)
  )
  if safe.partition(".")[0].lower() in _DEVICES:
    safe = _escaped(safe[0]) + safe[1:]
  if len(safe.encode()) > _LONGEST:
    digest = hashlib.sha256(safe.encode()).hexdigest()[:12]
    start = safe.encode()[: _LONGEST - 13].decode(errors="ignore")
    safe = f"{start}~{digest}"
  return safe or "_"


def _escaped(char):
  encoded = char.encode("utf-8", "surrogatepass")
  return "".join(f"%{byte:02X}" for byte in encoded)
