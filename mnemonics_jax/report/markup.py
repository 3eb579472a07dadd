"""Pieces of HTML. Everything that comes from outside passes `text`."""

import base64
from collections.abc import Iterable, Mapping
import html
import io
import os
from pathlib import Path
import re
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image

from mnemonics_jax.report import draw
from mnemonics_jax.report.tables import REPORTED, Table

_DIFFERENCE = re.compile(r"([+−])(\d+\.\d+) ± (\d+\.\d+)")


def text(value: Any) -> str:
  """Any value as text that a browser shows and never interprets."""
  return html.escape(str(value), quote=True)


def code(value: str) -> str:
  """Text whose parts in backticks are shown as code."""
  return re.sub("`([^`]*)`", r"<code>\1</code>", text(value))


def link(path: Path, at: Path, words: str | None = None) -> str:
  """A link to a file, from a page in the directory `at`.

  Args:
    path: the file.
    at: where the page is.
    words: the link's text, by default the name of the file.
  """
  # Quoted, a name cannot become an address of another kind.
  target = quote(Path(os.path.relpath(path, at)).as_posix())
  return f'<a href="{target}">{text(words or path.name)}</a>'


def table(data: Table, links: Mapping[str, str] | None = None) -> str:
  """A table in a box of its own, which scrolls when it is wide.

  Bold is the reported read-out. Colour is a difference whose interval does not
  include zero; without an interval there is none.

  Args:
    data: the cells.
    links: HTML instead of labels in the first column, by label.
  """
  marked = {i for i, c in enumerate(data.header) if c.endswith(REPORTED)}

  def row(cells: Iterable[str], tag: str) -> str:
    out = []
    for column, cell in enumerate(cells):
      kind = tag if column else 'th scope="row"'
      classes = []
      if column in marked or cell.endswith(REPORTED):
        classes.append("reported")
      cell = cell.removesuffix(REPORTED)
      if found := _DIFFERENCE.fullmatch(cell):
        sign, mean, half = found.groups()
        if float(mean) > float(half):
          classes.append("up" if sign == "+" else "down")
      attribute = f' class="{" ".join(classes)}"' if classes else ""
      shown = text(cell) if column else (links or {}).get(cell, text(cell))
      out.append(f"<{kind}{attribute}>{shown}</{kind.split()[0]}>")
    return f"<tr>{''.join(out)}</tr>"

  groups = "".join(
    f'<th colspan="{span}" scope="colgroup">{text(title)}</th>'
    if title
    else f'<td colspan="{span}"></td>'
    for title, span in data.groups
  )
  head = f'<tr class="groups">{groups}</tr>' if groups else ""
  head += row(data.header, "th").replace('scope="row"', 'scope="col"')
  foot = "".join(row(cells, "td") for cells in data.footer)
  return (
    f'<div class="scroll{" tall" if len(data.rows) > 12 else ""}" tabindex="0">'
    "<table>"
    f"<thead>{head}</thead>"
    f"<tbody>{''.join(row(cells, 'td') for cells in data.rows)}</tbody>"
    + (f"<tfoot>{foot}</tfoot>" if foot else "")
    + "</table></div>"
  )


def pairs(values: Mapping[str, Any]) -> str:
  """A mapping as a list of names and values; nested mappings in one line."""
  items = []
  for name, value in values.items():
    if isinstance(value, Mapping):
      value = ", ".join(f"{k} {v}" for k, v in value.items())
    elif isinstance(value, list):
      value = ", ".join(map(str, value))
    items.append(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>")
  return f'<dl class="settings">{"".join(items)}</dl>'


def picture(path: Path, at: Path, *, wide: bool = False) -> str:
  """An embedded PNG that `drawing.save` wrote, or "" when it does not exist.

  What it shows is told below it and, to those who do not see it, instead of it.

  Args:
    path: the picture; its numbers are in a CSV file of the same name.
    at: where the page is.
    wide: whether it keeps a width at which it can be read.
  """
  if not path.exists():
    return ""
  data = base64.b64encode(path.read_bytes()).decode("ascii")
  shows = text(draw.finding(path))
  width, height = draw.size(path)
  return (
    f"<figure{' class=wide' if wide else ''}>"
    '<div class="scroll frame" tabindex="0">'
    f'<img src="data:image/png;base64,{data}" width="{width}" '
    f'height="{height}" alt="{shows}"></div>'
    f'<figcaption><span aria-hidden="true">{shows}</span> '
    f"{link(path.with_suffix('.csv'), at)}</figcaption></figure>"
  )


def pixels(image: np.ndarray, description: str, zoom: int = 1) -> str:
  """An array of pixels as an embedded image, which browsers enlarge."""
  buffer = io.BytesIO()
  Image.fromarray(image).save(buffer, "PNG", optimize=True)
  data = base64.b64encode(buffer.getvalue()).decode("ascii")
  height, width = image.shape[:2]
  return (
    f'<img class="pixels" src="data:image/png;base64,{data}" '
    f'width="{zoom * width}" height="{zoom * height}" alt="{text(description)}">'
  )
