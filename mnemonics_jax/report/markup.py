"""Pieces of HTML. Everything that comes from outside passes `text`."""

import base64
from collections.abc import Iterable, Mapping
import html
import io
from pathlib import Path
import re
from typing import Any

import numpy as np
from PIL import Image

from mnemonics_jax.report.tables import REPORTED, Table


def text(value: Any) -> str:
  """Any value as text that a browser shows and never interprets."""
  return html.escape(str(value), quote=True)


def code(value: str) -> str:
  """Text whose parts in backticks are shown as code."""
  return re.sub("`([^`]*)`", r"<code>\1</code>", text(value))


def table(data: Table) -> str:
  """A table in a box of its own, which scrolls when it is wide."""
  marked = {i for i, c in enumerate(data.header) if c.endswith(REPORTED)}

  def row(cells: Iterable[str], tag: str) -> str:
    out = []
    for column, cell in enumerate(cells):
      kind = tag if column else 'th scope="row"'
      classes = []
      if column in marked or cell.endswith(REPORTED):
        classes.append("reported")
      if cell.strip("+−0.") and cell[0] in "+−":
        classes.append("up" if cell[0] == "+" else "down")
      attribute = f' class="{" ".join(classes)}"' if classes else ""
      cell = text(cell.removesuffix(REPORTED))
      out.append(f"<{kind}{attribute}>{cell}</{kind.split()[0]}>")
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


def picture(path: Path, caption: str, *, wide: bool = False) -> str:
  """An embedded PNG with its caption (text), or "" when it does not exist."""
  if not path.exists():
    return ""
  data = base64.b64encode(path.read_bytes()).decode("ascii")
  title = text(path.stem.replace("_", " "))
  return (
    f'<figure{" class=wide" if wide else ""}><div class="scroll frame">'
    f'<img src="data:image/png;base64,{data}" alt="{title}"></div>'
    f"<figcaption>{text(caption)}</figcaption></figure>"
  )


def thumbnail(pixels: np.ndarray, description: str) -> str:
  """An array of pixels as an embedded image at its own size."""
  buffer = io.BytesIO()
  Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
  data = base64.b64encode(buffer.getvalue()).decode("ascii")
  height, width = pixels.shape[:2]
  return (
    f'<img src="data:image/png;base64,{data}" width="{width}" '
    f'height="{height}" alt="{text(description)}">'
  )
