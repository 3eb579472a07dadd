"""Examples in docstrings are code: without a fence Markdown reads links in them."""

from typing import Any

from griffe import Extension, Object


class Doctests(Extension):
  """Fences the examples of every docstring."""

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
