"""report.html: one page about a run; comparison.html: one about several.

Pages load nothing. Links lead to the files behind them, and from a comparison
to the pages of its runs.
"""

from collections.abc import Mapping, Sequence
import importlib.resources
import os
from pathlib import Path
import re

from mnemonics_jax import files
from mnemonics_jax.registry import READOUTS
from mnemonics_jax.report import figures, markup, story, tables
from mnemonics_jax.report.group import (
  Group,
  by_data,
  common_title,
  labels,
  merge_seeds,
)
from mnemonics_jax.report.sections import MAP_CAPTION, SECTIONS, Section
from mnemonics_jax.runs.finished import Run, load_run
from mnemonics_jax.runs.layout import WorkdirError

# No script, no request: names that slip through escaping could not act.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

_COMPARISON_NOTE = (
  "Accuracy in percent, mean ± 95 % confidence interval where there are several "
  "seeds. Difference: average accuracy minus that of the first run, paired seed "
  "by seed, if both have the same seeds and phases. Bold: the run reports this "
  "read-out. Colour: the interval of the difference does not include zero."
)
_CURVES_CAPTION = (
  "Accuracy on all classes learned so far; the legend lists the curves in the "
  "order in which they end. Ribbons are 95 % confidence intervals over the "
  "seeds. The dashed black line, if there is one, is joint training on all "
  "images: the upper bound. Runs that differ in their seeds only are one curve."
)
_APART = (
  "These runs do not learn the same data, so they are shown in groups. Numbers "
  "of different groups cannot be compared."
)

# Pictures of a comparison that have a section of their own.
_WIDE = {
  "comparison_map": (
    "Map of features",
    f"{MAP_CAPTION} One row per run (at most four), the first seed of each.",
  ),
  "comparison_distances": (
    "How far exemplars move",
    "Distance of learned exemplars to the images they began with, in the "
    "features of the network that was fixed while they moved, after each meta "
    "epoch. One line per phase, dark to bright, smoothed; faint lines are what "
    "was measured, the mean over the seeds. One column per run (at most four).",
  ),
}


def build(
  workdirs: Sequence[str | os.PathLike[str]],
  output: str | os.PathLike[str] | None = None,
) -> Path:
  """Draws the figures of runs and writes one page about them.

  >>> build(["finished_run"]).as_posix()
  'finished_run/report.html'

  A page about several links to one about each, which is written, too.

  Args:
    workdirs: one work directory, or several to compare.
    output: the page to write, or a directory for it; by default report.html
      in the work directory, or comparison.html in the first one of several.

  Returns:
    The path of the page.

  Raises:
    WorkdirError: when a directory holds no run that has ended a phase.
  """
  if not workdirs:
    raise WorkdirError(
      "workdir",
      "There is nothing to report on",
      "name the work directory of at least one run",
    )
  runs = [load_run(path, unfinished=True) for path in workdirs]
  name = "report.html" if len(runs) == 1 else "comparison.html"
  path = runs[0].path / name if output is None else Path(output)
  if path.is_dir():
    path = path / name
  path.parent.mkdir(parents=True, exist_ok=True)
  for run in runs:
    figures.write_figures(run)
  if len(runs) == 1:
    _write_single(runs[0], path)
    return path
  for run in runs:
    _write_single(run, run.path / "report.html")
  title = f"{len(runs)} runs of {common_title(runs) or 'different data'}"
  files.write_text(path, document(title, _comparison(runs, path.parent)))
  return path


def _write_single(run: Run, path: Path) -> None:
  files.write_text(
    path, document(run.results["title"], _single(run, path.parent))
  )


def document(title: str, body: str) -> str:
  """A whole page around its body, which is HTML; the title is text."""
  style = importlib.resources.files("mnemonics_jax.report") / "style.css"
  return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{markup.text(title)}</title>
<link rel="icon" href="data:,">
<style>
{style.read_text(encoding="utf-8")}
</style>
</head>
<body>
<main>
{body}
</main>
<footer>Written by mnemonics_jax. Links lead to files beside this page, which is
complete without them.</footer>
</body>
</html>
"""


def _single(run: Run, at: Path) -> str:
  sections = [found for make in SECTIONS if (found := make(run, at))]
  links = "".join(
    f'<a href="#{_anchor(s.title)}">{markup.text(s.title)}</a>'
    for s in sections
  )
  return (
    f"<header>{_opening(run)}</header>"
    f'<nav aria-label="Sections">{links}</nav>{_render(sections)}'
  )


def _opening(run: Run) -> str:
  """Title, what happened in plain words, and the numbers that matter."""
  results = run.results
  advice = story.advice(run)
  cards = "".join(
    f"<div><dt>{markup.text(name)}</dt><dd>{markup.text(value)}"
    f"<small>{markup.text(note)}</small></dd></div>"
    for name, value, note in story.key_numbers(run)
  )
  return (
    f'<p class="kind">Run report</p><h1>{markup.text(results["title"])}</h1>'
    + (f'<p class="warning">{_left(run)}</p>' if run.phases_left else "")
    + f'<p class="lead">{markup.text(story.outcome(run))}</p>'
    + (f'<p class="warning">{markup.code(advice)}</p>' if advice else "")
    + f"<p>{markup.text(story.describe(results))}</p>"
    + "".join(f'<p class="warning">{markup.text(p)}</p>' for p in run.problems)
    + f'<dl class="numbers">{cards}</dl>'
    + f'<p class="note">{markup.text(story.caveat(results))}</p>'
  )


def _comparison(runs: Sequence[Run], at: Path) -> str:
  groups = by_data(runs)
  directory = runs[0].path / "figures"
  parts = []
  for number, group in enumerate(groups, 1):
    suffix = f"_{number}" if len(groups) > 1 else ""
    if len(groups) > 1:
      parts.append(f'<h2 class="group">{markup.text(group.title)}</h2>')
    parts.append(_group(group, at, directory, suffix))
  lead = "" if len(groups) == 1 else f'<p class="lead">{_APART}</p>'
  return (
    f'<header><p class="kind">Comparison of {len(runs)} runs</p>'
    f"<h1>{markup.text(common_title(runs) or 'Runs of different data')}</h1>"
    f"{lead}</header>{''.join(parts)}"
  )


def _group(group: Group, at: Path, directory: Path, suffix: str) -> str:
  """Runs on the same data: who is ahead, side by side, one by one."""
  merged = merge_seeds(group.runs)
  names = labels(merged)
  pages = {
    id(run): markup.link(run.path / "report.html", at, name)
    for name, run in zip(labels(group.runs), group.runs, strict=True)
  }
  # Runs that were joined have no page in common.
  links = {
    name: markup.link(run.path / "report.html", at, name)
    for name, run in zip(names, merged, strict=True)
    if id(run) in pages
  }
  text = story.compare(names, merged)
  if len(merged) < len(group.runs) and len(merged) == 1:
    text = f"These runs differ in their seeds only and count as one. {text}"
  parts = [f'<p class="lead">{markup.text(text)}</p>']
  if len(group.runs) > 1:
    drawn = figures.write_comparison(merged, directory, suffix)
    parts.append(_side_by_side(names, merged, links, drawn, at))
  each = "".join(
    f"<li>{pages[id(run)]}<br>{markup.text(story.outcome(run))}"
    + (f" {_left(run)}" if run.phases_left else "")
    + "</li>"
    for run in group.runs
  )
  parts.append(
    f'<section><h2>The runs one by one</h2><ul class="runs">{each}</ul></section>'
  )
  return "".join(parts)


def _side_by_side(
  names: Sequence[str],
  runs: Sequence[Run],
  links: Mapping[str, str],
  drawn: Sequence[Path],
  at: Path,
) -> str:
  """Curves and tables, and what else was drawn, a section each."""
  results = [run.results for run in runs]
  compared = ""
  for readout in READOUTS:
    table = tables.comparison_table(names, results, readout)
    if table.rows:
      compared += f"<h4>Read-out {readout}</h4>{markup.table(table, links)}"
  by_kind = dict.fromkeys(("curves", *_WIDE), "")
  for path in drawn:
    kind = next((k for k in _WIDE if path.stem.startswith(k)), "curves")
    by_kind[kind] += markup.picture(path, at, wide=kind in _WIDE)
  wide = "".join(
    f"<section><h2>{title}</h2><p>{markup.text(caption)}</p>"
    f'<div class="single">{by_kind[kind]}</div></section>'
    for kind, (title, caption) in _WIDE.items()
    if by_kind[kind]
  )
  return (
    f'<section class="compare"><h2>Side by side</h2>'
    f"<p>{_CURVES_CAPTION}</p>"
    f'<div class="row">{by_kind["curves"]}</div>{compared}'
    f'<p class="note">{_COMPARISON_NOTE}</p></section>{wide}'
  )


def _left(run: Run) -> str:
  done = len(run.results["classes_per_phase"])
  return (
    f"This run has not ended: {done} of {done + run.phases_left} phases are"
    " shown here."
  )


def _render(sections: Sequence[Section]) -> str:
  return "".join(
    f"<section id={_anchor(title)}><h2>{markup.text(title)}</h2>{body}</section>"
    for title, body in sections
  )


def _anchor(title: str) -> str:
  return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
