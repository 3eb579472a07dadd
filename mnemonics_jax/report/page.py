"""report.html: one page that holds everything and loads nothing."""

from collections.abc import Sequence
import importlib.resources
import os
from pathlib import Path
import re

from mnemonics_jax.registry import READOUTS
from mnemonics_jax.report import figures, forgotten, markup, summary, tables
from mnemonics_jax.report.labels import common_title, labels
from mnemonics_jax.report.merging import merge_seeds
from mnemonics_jax.report.sections import MAP_CAPTION, SECTIONS, Section
from mnemonics_jax.runs import files
from mnemonics_jax.runs.finished import Run, load_run
from mnemonics_jax.runs.layout import WorkdirError

# No script, no request: names that slip through escaping could not act.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

_COMPARISON_NOTE = (
  "Accuracy in percent, mean ± 95 % confidence interval where there are several "
  "seeds. Difference: average accuracy minus that of the first run, paired seed "
  "by seed. Bold: the run reports this read-out."
)
_CURVES_CAPTION = (
  "Accuracy on all classes learned so far; the legend lists the curves in the "
  "order in which they end. Ribbons are 95 % confidence intervals over the "
  "seeds. The dashed black line, if there is one, is joint training on all "
  "images: the upper bound. Runs that differ in their seeds only are one curve."
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
  for run in runs:
    figures.write_figures(run)
  if len(runs) == 1:
    title, body = runs[0].results["title"], _single(runs[0])
    default = runs[0].path / "report.html"
  else:
    title, body = f"{len(runs)} runs of {common_title(runs)}", _comparison(runs)
    default = runs[0].path / "comparison.html"
  path = default if output is None else Path(output)
  if path.is_dir():
    path = path / default.name
  path.parent.mkdir(parents=True, exist_ok=True)
  files.write_text(path, document(title, body))
  return path


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
<footer>Written by mnemonics_jax. This page is complete in one file.</footer>
</body>
</html>
"""


def _single(run: Run) -> str:
  sections = _sections(run)
  links = "".join(
    f'<a href="#{_anchor(s.title)}">{markup.text(s.title)}</a>'
    for s in sections
  )
  return (
    f"<header>{_opening(run, titled=True)}</header>"
    f'<nav aria-label="Sections">{links}</nav>{_render(sections)}'
  )


def _comparison(runs: Sequence[Run]) -> str:
  merged = merge_seeds(runs)
  names = labels(merged)
  results = [run.results for run in merged]
  compared = []
  for readout in READOUTS:
    table = tables.comparison_table(names, results, readout)
    if table.rows:
      compared.append(f"<h4>Read-out {readout}</h4>{markup.table(table)}")
  drawn = figures.write_comparison(merged, runs[0].path / "figures")
  by_kind = {kind: "" for kind in ("curves", *_WIDE)}
  for path in drawn:
    kind = path.stem if path.stem in _WIDE else "curves"
    by_kind[kind] += markup.picture(
      path, f"Numbers: figures/{path.stem}.csv", wide=kind in _WIDE
    )
  wide = "".join(
    f"<section><h2>{title}</h2><p>{markup.text(caption)}</p>"
    f'<div class="single">{by_kind[kind]}</div></section>'
    for kind, (title, caption) in _WIDE.items()
    if by_kind[kind]
  )
  parts = [
    f'<header><p class="kind">Comparison of {len(runs)} runs</p>'
    f"<h1>{markup.text(common_title(runs) or 'Runs')}</h1>"
    f'<p class="lead">{markup.text(summary.compare(names, merged))}</p></header>',
    f'<section class="compare"><h2>Side by side</h2>'
    f"<p>{_CURVES_CAPTION}</p>"
    f'<div class="row">{by_kind["curves"]}</div>{"".join(compared)}'
    f'<p class="note">{_COMPARISON_NOTE}</p></section>',
    wide,
    "<h2>The runs one by one</h2>",
  ]
  for name, run in zip(labels(runs), runs, strict=True):
    parts.append(
      f'<details class="run"><summary>{markup.text(name)}</summary>'
      f"{_opening(run, titled=False)}{_render(_sections(run), ids=False)}</details>"
    )
  return "".join(parts)


def _opening(run: Run, *, titled: bool) -> str:
  """Title, what happened in plain words, and the numbers that matter."""
  results = run.results
  title = markup.text(results["title"])
  alarm = forgotten.warning(run)
  cards = "".join(
    f"<div><dt>{markup.text(name)}</dt><dd>{markup.text(value)}"
    f"<small>{markup.text(note)}</small></dd></div>"
    for name, value, note in summary.key_numbers(run)
  )
  return (
    (f'<p class="kind">Run report</p><h1>{title}</h1>' if titled else "")
    + (f'<p class="warning">{_left(run)}</p>' if run.phases_left else "")
    + f'<p class="lead">{markup.text(summary.describe(results))}</p>'
    + (f'<p class="warning">{markup.code(alarm)}</p>' if alarm else "")
    + "".join(f'<p class="warning">{markup.text(p)}</p>' for p in run.problems)
    + f'<dl class="numbers">{cards}</dl>'
    + f'<p class="note">{markup.text(summary.caveat(results))}</p>'
  )


def _left(run: Run) -> str:
  done = len(run.results["classes_per_phase"])
  return (
    f"This run has not ended: {done} of {done + run.phases_left} phases are"
    " shown here."
  )


def _sections(run: Run) -> list[Section]:
  return [found for make in SECTIONS if (found := make(run))]


def _render(sections: Sequence[Section], *, ids: bool = True) -> str:
  return "".join(
    f"<section{f' id={_anchor(title)}' if ids else ''}>"
    f"<h2>{markup.text(title)}</h2>{body}</section>"
    for title, body in sections
  )


def _anchor(title: str) -> str:
  return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
