"""Numbers, lists, durations and labels as text."""

from collections.abc import Sequence

_SMALL = ("no", "one", "two", "three", "four", "five")
_SMALL += ("six", "seven", "eight", "nine", "ten")


def share(fraction: float) -> str:
  """A share in percent with one digit, or none where it is exactly 0 or 1.

  >>> share(0.098), share(0.0)
  ('9.8\\xa0%', '0\\xa0%')
  """
  digits = 0 if fraction in (0, 1) else 1
  return f"{100 * fraction:.{digits}f}\u00a0%"


def count(number: int, noun: str = "") -> str:
  """A number with its noun; a word up to ten: "five classes", "12 seeds"."""
  word = _SMALL[number] if 0 <= number < len(_SMALL) else str(number)
  if not noun:
    return word
  ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
  return f"{word} {noun}{ending}"


def listed(items: Sequence[str], most: int = 8) -> str:
  """Items as in a sentence; of many, the first ones.

  >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
  ('a, b and c', 'a, b and one more')
  """
  shown = list(items[:most])
  if len(items) > most:
    shown.append(f"{count(len(items) - most)} more")
  return " and ".join(
    [", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown
  )


def spans(numbers: Sequence[int]) -> str:
  """Increasing whole numbers with neighbours joined: "1 to 3 and 5"."""
  runs: list[list[int]] = []
  for number in numbers:
    if runs and number == runs[-1][-1] + 1:
      runs[-1].append(number)
    else:
      runs.append([number])
  parts = [
    part
    for run in runs
    for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))
  ]
  return listed(parts, most=len(parts))


def capital(text: str) -> str:
  """The text with a capital letter at its beginning."""
  return text[:1].upper() + text[1:]


def shorten(text: str, length: int = 18) -> str:
  """One line of at most `length` characters, for labels."""
  text = " ".join(text.split())
  return text if len(text) <= length else text[: length - 1] + "…"


def format_duration(seconds: float) -> str:
  """`42 s`, `3 min 05 s` or `2 h 10 min`."""
  minutes, rest = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  if hours:
    return f"{hours} h {minutes:02d} min"
  return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
