"""A page as data, written as HTML or as Markdown.

`page.html.j2` and `page.md.j2` say how pages look; they escape every text. A page
loads nothing: pictures are part of it, and links lead to files.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import importlib.resources
import io
import os
from pathlib import Path
import re
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from PIL import Image

from mnemonics_jax.report import draw
from mnemonics_jax.report.tables import REPORTED, Table

_DIFFERENCE = re.compile(r"([+−])(\d+\.\d+) ± (\d+\.\d+)")
_LONG = 12  # Tables with more rows scroll.


class Paragraph(NamedTuple):
  """A paragraph at the top of a page.

  Attributes:
    text: words.
    kind: "lead", "warning", "advice", whose backticks mark code, or "".
  """

  text: str
  kind: str = ""


class Link(NamedTuple):
  """A link to a file, with the words to click on and a sentence below."""

  path: Path
  words: str
  text: str = ""


class Pixels(NamedTuple):
  """An image of a few pixels.

  Attributes:
    image: uint8 [h, w, 3 or 4].
    words: what it shows, for those who do not see it.
    zoom: how many times larger a browser shows it.
    caption: what stands below it.
    note: after the caption, in small letters.
  """

  image: np.ndarray
  words: str
  zoom: int
  caption: str = ""
  note: str = ""

  @property
  def size(self) -> tuple[int, int]:
    height, width = self.image.shape[:2]
    return self.zoom * width, self.zoom * height

  @property
  def data(self) -> str:
    buffer = io.BytesIO()
    Image.fromarray(self.image).save(buffer, "PNG", optimize=True)
    return _base64(buffer.getvalue())


class Sheet(NamedTuple):
  """Images in a row for each label.

  Attributes:
    header: a word above each third of an image.
    rows: label and images.
    caption: what the sheet shows.
    file: the same as a picture, with a CSV file beside it.
  """

  header: Sequence[str]
  rows: Sequence[tuple[str, Sequence[Pixels]]]
  caption: str
  file: Path


@dataclasses.dataclass(frozen=True)
class Section:
  """Part of a page, in the order of its fields.

  Attributes:
    title: its heading.
    kind: "group" begins a group of sections, "beside" has tables beside figures,
      "compare" has room for long labels.
    command: a command line to copy.
    text: paragraphs.
    figures: PNG files that `draw.save` wrote.
    wide: whether figures keep a width at which they can be read.
    tables: tables.
    links: where labels in the first column of tables lead.
    tiles: images beside each other, with captions.
    sheets: images in rows.
    runs: a list of links.
    facts: names and values; with a title, they unfold.
    parts: sections within this one.
    notes: small paragraphs at the end.
    files: pictures of tiles; their CSV files are linked, too.
  """

  title: str = ""
  kind: str = ""
  command: str = ""
  text: Sequence[str] = ()
  figures: Sequence[Path] = ()
  wide: bool = False
  tables: Sequence[Table] = ()
  links: Mapping[str, Path] = dataclasses.field(default_factory=dict)
  tiles: Sequence[Pixels] = ()
  sheets: Sequence[Sheet] = ()
  runs: Sequence[Link] = ()
  facts: Sequence[tuple[str, Mapping[str, Any]]] = ()
  parts: Sequence["Section"] = ()
  notes: Sequence[str] = ()
  files: Sequence[Path] = ()

  @property
  def anchor(self) -> str:
    return re.sub(r"[^a-z]+", "-", self.title.lower()).strip("-")


@dataclasses.dataclass(frozen=True)
class Page:
  """A page.

  Attributes:
    kind: what sort of page it is, in a few words.
    title: heading.
    opening: paragraphs below the heading.
    cards: the numbers that matter: name, value and note.
    caveat: what to keep in mind of them.
    sections: the body.
    window: title of the browser's window, if it is another one.
    menu: whether links to the sections stay at the top.
  """

  kind: str
  title: str
  opening: Sequence[Paragraph] = ()
  cards: Sequence[tuple[str, str, str]] = ()
  caveat: str = ""
  sections: Sequence[Section] = ()
  window: str = ""
  menu: bool = False


def html(page: Page, directory: Path) -> str:
  """The page as HTML, for a file in this directory."""
  return _render("page.html.j2", page, directory)


def markdown(page: Page, directory: Path) -> str:
  """The page as Markdown, without images in rows."""
  text = _render("page.md.j2", page, directory)
  return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def markdown_table(table: Table) -> str:
  """A table as Markdown: its one header line repeats the groups."""
  spans = [name for name, span in table.groups for _ in range(span)]
  spans = spans or [""] * len(table.header)
  header = [
    f"{group}, {cell}" if group else cell
    for group, cell in zip(spans, table.header, strict=True)
  ]

  def line(cells: Iterable[str]) -> str:
    out = []
    for cell in cells:
      text = cell.removesuffix(REPORTED).replace("|", "\\|")
      out.append(f"**{text}**" if cell.endswith(REPORTED) else text)
    return f"| {' | '.join(out)} |"

  rule = "|".join(["---", *["---:"] * (len(header) - 1)])
  rows = [*table.rows, *table.footer]
  return "\n".join([line(header), f"|{rule}|", *map(line, rows)])


def _render(template: str, page: Page, directory: Path) -> str:
  import jinja2  # A run writes its page at the end: until then it needs none.

  room = importlib.resources.files("mnemonics_jax.report")
  read = lambda name: (room / name).read_text(encoding="utf-8")
  environment = jinja2.Environment(
    loader=jinja2.FunctionLoader(read),
    autoescape=template == "page.html.j2",
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  environment.filters |= {
    "address": lambda path: _address(path, directory),
    "cells": _cells,
    "embedded": lambda path: _base64(path.read_bytes()),
    "finding": draw.finding,
    "markdown": markdown_table,
    "numbers": lambda path: path.with_suffix(".csv"),
    "size": draw.size,
    "split_code": lambda text: re.split("`([^`]*)`", text),
    "value": _value,
  }
  names = {"page": page, "long": _LONG, "style": read("style.css")}
  return environment.get_template(template).render(names)


def _address(path: Path, directory: Path) -> str:
  """Where a file is, seen from a page in a directory."""
  # Quoted, a name cannot become an address of another kind.
  return quote(Path(os.path.relpath(path, directory)).as_posix())


def _base64(data: bytes) -> str:
  return base64.b64encode(data).decode("ascii")


def _value(value: Any) -> str:
  """A setting as text; nested ones in one line."""
  if isinstance(value, Mapping):
    value = [f"{name} {each}" for name, each in value.items()]
  return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cells(table: Table) -> dict[str, list[list[tuple[str, str]]]]:
  """Texts of cells, each with its classes.

  "reported" is the reported read-out, "up" and "down" are differences whose
  interval does not include zero. A difference without interval is neither.
  """
  marked = {i for i, c in enumerate(table.header) if c.endswith(REPORTED)}

  def cell(column: int, text: str) -> tuple[str, str]:
    classes = []
    if column in marked or text.endswith(REPORTED):
      classes.append("reported")
    text = text.removesuffix(REPORTED)
    if found := _DIFFERENCE.fullmatch(text):
      sign, mean, half = found.groups()
      if float(mean) > float(half):
        classes.append("up" if sign == "+" else "down")
    return text, " ".join(classes)

  parts = {"head": [table.header], "body": table.rows, "foot": table.footer}
  return {
    name: [[cell(*each) for each in enumerate(row)] for row in rows]
    for name, rows in parts.items()
  }
