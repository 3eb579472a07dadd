"""What may happen to the files of a checkpoint."""

import os
from pathlib import Path
import shutil


def truncate(path: Path) -> None:
  file = _largest_file(path)
  os.truncate(file, file.stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
  file = _largest_file(path)
  content = bytearray(file.read_bytes())
  content[len(content) // 2] ^= 1
  file.write_bytes(content)


def delete_a_file(path: Path) -> None:
  arrays = path / "arrays"
  next(file for file in arrays.rglob("*") if file.is_file()).unlink()


def add_a_file(path: Path) -> None:
  (path / "arrays" / "stray").write_text("more")


def delete_the_manifest(path: Path) -> None:
  (path / "manifest.json").unlink()


def empty(path: Path) -> None:
  shutil.rmtree(path)
  path.mkdir()


ALL = [
  truncate,
  flip_a_bit,
  delete_a_file,
  add_a_file,
  delete_the_manifest,
  empty,
]


def _largest_file(path):
  files = [file for file in path.rglob("*") if file.is_file()]
  return max(files, key=lambda file: file.stat().st_size)
