"""What the site shows besides docs/: notebooks, results, settings, the project's texts.

`mkdocs.yml` names this file twice: mkdocs calls `on_files` and `on_page_markdown`,
griffe, which reads docstrings, takes `Doctests`. Links in the sources are those of the
repository, so that they also work where it is browsed; the site's root is that of the
repository and docs/ in one.
"""

import itertools
from pathlib import Path
import posixpath
import re
import runpy
from typing import Any

from griffe import Extension, Object
from mkdocs.structure.files import File
import nbformat

ROOT = Path(__file__).parents[1]
TEXTS = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
# Copies that have been executed (`make notebooks`) show what came out, too.
EXECUTED = ROOT / "build" / "notebooks"

# Code comes first: what looks like a link in there is none.
_LINK = re.compile(r"```.*?```|`[^`]*`|(\]\()([^)\s#]+)", re.DOTALL)


def on_files(files, config):
  """Adds the page of settings, and what is outside docs/ under its path there."""
  outside = [ROOT / name for name in (*TEXTS, "benchmarks/README.md")]
  outside += [
    path
    for path in sorted((ROOT / "results").rglob("*"))
    if path.suffix in (".md", ".png")
  ]
  for path in outside:
    uri = path.relative_to(ROOT).as_posix()
    files.append(File.generated(config, uri, abs_src_path=str(path)))
  settings = runpy.run_path(str(ROOT / "docs" / "settings.py"))["page"]()
  files.append(File.generated(config, "settings.md", content=settings))
  for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
    executed = EXECUTED / path.name
    text = as_markdown(executed if executed.exists() else path)
    page = f"notebooks/{path.stem}.md"
    files.append(File.generated(config, page, content=text))
  return files


def on_page_markdown(markdown, page, config, files):
  """Links of the repository become those of the site."""
  source = page.file.src_uri
  in_docs = (ROOT / "docs" / source).exists()
  place = posixpath.dirname(
    posixpath.join("docs", source) if in_docs else source
  )

  def rewrite(match):
    target = match[2]
    if target is None or ":" in target:
      return match[0]
    path = posixpath.normpath(posixpath.join(place, target))
    path = re.sub(r"^docs/", "", path)
    path = re.sub(r"^(notebooks/.*)\.ipynb$", r"\1.md", path)
    start = posixpath.dirname(source) or "."
    return match[1] + posixpath.relpath(path, start)

  return _LINK.sub(rewrite, markdown)


def as_markdown(path: Path) -> str:
  """A notebook as a page: text, code, and what was printed or drawn.

  Args:
    path: of the notebook.
  """
  cells = nbformat.read(path, as_version=4).cells
  return "\n\n".join(part for cell in cells for part in _parts(cell))


def _parts(cell: Any) -> list[str]:
  if cell.cell_type == "markdown":
    return [cell.source]
  shown = []
  # What is printed line by line is one text.
  for picture, outputs in itertools.groupby(cell.outputs, _picture):
    if picture:
      shown.append(f"![what the code above draws]({picture})")
    else:
      text = "".join(map(_text, outputs)).strip("\n")
      shown += [_fenced(text, "text")] if text else []
  return [_fenced(cell.source, "python"), *shown]


def _picture(output: Any) -> str:
  """The picture that an output is, as an address; empty if it is none."""
  png = output.get("data", {}).get("image/png", "").replace("\n", "")
  return png and f"data:image/png;base64,{png}"


def _text(output: Any) -> str:
  return output.get("text", output.get("data", {}).get("text/plain", ""))


def _fenced(text: str, language: str) -> str:
  return f"```{language}\n{text}\n```"


class Doctests(Extension):
  """Fences the examples of docstrings: Markdown would read links in them."""

  def on_object(self, *, obj: Object, **_: Any) -> None:
    """Called for everything that griffe finds."""
    if obj.docstring:
      obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
  """Puts a fence around paragraphs that begin with a prompt.

  Args:
    text: a docstring without its indentation.
  """
  paragraphs = (
    f"```pycon\n{paragraph}\n```" if paragraph.startswith(">>>") else paragraph
    for paragraph in text.split("\n\n")
  )
  return "\n\n".join(paragraphs)
