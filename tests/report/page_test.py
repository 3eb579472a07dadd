"""Pages: complete, escaped, as data, and fine in a real browser."""

import base64
import dataclasses
import html
import html.parser
import io
import json
from pathlib import Path
import re
import shutil
from urllib.parse import unquote

import numpy as np
from PIL import Image
import pytest
from support import report_fixture

from mnemonics_jax import report
from mnemonics_jax.report import lines, page, render
from mnemonics_jax.report.render import Page, Paragraph, Section
from mnemonics_jax.report.tables import REPORTED, Table
from mnemonics_jax.runs import layout

EVIL = "<b onclick='x'>&\"`code`"
NAMES = [
  "<script>document.title = 'run'</script>",
  '"><img src=x onerror="document.title = \'run\'">',
  "' onmouseover='document.title = 1",
  "</figcaption></title></style><iframe src=https://example.com>",
  "&lt;b&gt; {{ 7 * 7 }} $x_1",
]


class Browser(html.parser.HTMLParser):
  """What a browser would make of a page: tags, attributes, text, table cells."""

  def __init__(self, text: str):
    super().__init__()
    self.tags, self.attributes, self.text = set(), [], []
    self.rows, self.classes, self._open = [], [], False
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    self.tags.add(tag)
    self.attributes += attrs
    if tag == "tr":
      self.rows.append([])
      self.classes.append([])
    if tag in ("td", "th"):
      self.rows[-1].append("")
      self.classes[-1].append((dict(attrs).get("class") or "").split())
      self._open = True

  def handle_endtag(self, tag):
    self._open = self._open and tag not in ("td", "th")

  def handle_data(self, data):
    self.text.append(data)
    if self._open:
      self.rows[-1][-1] += data


def rendered(*sections, **fields):
  """A page of these sections, as HTML."""
  return render.html(Page("kind", "title", sections=sections, **fields), Path())


def cells(table):
  return Browser(rendered(Section(tables=[table])))


def read(path):
  return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
  """The page of a run, and one that compares it with another, elsewhere."""
  root = tmp_path_factory.mktemp("pages")
  one = report_fixture.write(
    root / "<img src=x onerror=alert(2)>", learned=True
  )
  two = report_fixture.write(
    root / "two",
    exemplars="mnemonics",
    offset=0.04,
    finetune=False,
    learned=True,
  )
  return {
    "single": report.build([one]),
    "comparison": report.build([one, two], root / "out" / "both.html"),
  }


@pytest.fixture
def no_figures(monkeypatch):
  """Draws nothing, to save time."""
  monkeypatch.setattr(page, "DRAWERS", ())
  monkeypatch.setattr(page, "COMPARISONS", ())


def test_page_is_self_contained(pages):
  for path in pages.values():
    text = read(path)
    sources = re.findall(r"""src\s*=\s*["']([^"']*)""", text)
    assert sources
    assert all(s.startswith("data:") for s in sources)
    assert "<script" not in text
    assert "@import" not in text and "url(" not in text


def test_links_lead_to_files(pages):
  for name, path in pages.items():
    text = read(path)
    links = [unquote(link) for link in re.findall('<a href="(.*?)"', text)]
    inner = [link for link in links if link.startswith("#")]
    assert all(f"id={link[1:]}>" in text for link in inner)
    files = [link for link in links if not link.startswith("#")]
    assert all((path.parent / file).is_file() for file in files)
    # Every picture of numbers has them beside it.
    numbers = [file for file in files if file.endswith(".csv")]
    assert len(numbers) >= text.count('class="scroll frame"') > 3
    singles = [file for file in files if file.endswith("/report.html")]
    assert len(set(singles)) == (2 if name == "comparison" else 0)
  assert pages["single"].name == "report.html"
  compared = read(pages["comparison"])
  assert "/%3Cimg%20src%3Dx%20onerror%3Dalert%282%29%3E/report.html" in compared


def test_pictures_are_described_by_what_they_show(pages):
  for path in pages.values():
    text = read(path)
    described = re.findall('<img [^>]*height="[0-9]*" alt="([^"]*)"', text)
    assert len(described) == text.count("<img ")
    assert all(re.search("[a-z]{2} .*[a-z0-9%]", words) for words in described)
  described = " ".join(re.findall('alt="([^"]*)"', read(pages["single"])))
  fall = "From 3 to 5 classes, head falls from 89.0\u00a0% to 69.0\u00a0%"
  assert fall in described
  # 2 grey levels of one colour in a quarter of each image.
  assert "class 3, changed by 0.17 grey levels on average" in described


def test_page_tells_the_numbers(pages):
  text = read(pages["single"])
  # Mean of 0.70 and 0.68 after the last phase; forgetting 0.12 and 0.10.
  assert "69.0\u00a0% of the test images of all 5 classes" in text
  assert "fell by 11.0 points" in text
  assert "3 at first, then 2 phases of 1 more" in text
  assert "4 images per class" in text
  assert "do not compare these numbers with published ones" in text
  assert "They differ in: epochs 3 (paper: 160), net tiny." in text
  assert "python -m experiments.digits --method=lucir" in text
  assert "0123abc" in text
  assert "Fine-tune</h2>" in text


def test_comparisons_do_not_repeat_the_pages_of_runs(pages):
  single, compared = map(read, pages.values())
  assert "Memory</h2>" in single and 'class="pixels"' in single
  assert "Memory</h2>" not in compared and 'class="pixels"' not in compared
  # Averages 0.79 and 0.83 with the same spread: paired difference 0.04 ± 0.
  assert "4.0 ± 0.0 points above herding, seed by seed" in compared


def test_pages_of_a_hundred_classes_stay_light(tmp_path, no_figures):
  path = report_fixture.write(
    tmp_path / "run", groups=(50, *[10] * 5), seeds=(0,), slots=20, learned=True
  )
  # As hard to compress as photographs: slopes with noise.
  random = np.random.default_rng(0)
  slope = np.linspace(40, 200, 32, dtype=int)[:, None, None]

  def images(*shape):
    noise = random.integers(-20, 21, (*shape, 32, 32, 3))
    return (slope + noise).astype(np.uint8)

  for phase in range(6):
    file = path / "seed_0" / f"phase_{phase:02d}.npz"
    with np.load(file) as saved:
      arrays = dict(saved)
    for stage in ("exemplars", "adjust") if phase else ("exemplars",):
      before = images(20)
      change = random.integers(-2, 3, before.shape).astype(np.uint8)
      arrays[f"changed/{stage}/labels"] = np.repeat(np.arange(10), 2)
      arrays[f"changed/{stage}/before"] = before
      arrays[f"changed/{stage}/after"] = before + change
    if phase == 5:
      arrays["memory/images"] = images(100, 20)
    np.savez(file, **arrays)
  text = read(report.build([path]))
  # 3 MB, of which plots take half a megabyte.
  assert 1e6 < len(text) < 2.5e6
  assert "The first 4 of up to 20 per class are shown." in text
  # What is shown is shown to the pixel.
  data = re.findall('class="pixels" src="data:image/png;base64,(.*?)"', text)
  with Image.open(io.BytesIO(base64.b64decode(data[-100]))) as picture:
    first = np.asarray(picture)[:, :32, :3]
  np.testing.assert_array_equal(first, arrays["memory/images"][0, 0])


def test_what_there_is_has_a_section_and_the_rest_has_none(
  tmp_path, no_figures
):
  """No figure is drawn: a section that has nothing else is left out."""
  path = report_fixture.write(tmp_path / "run")
  titles = lambda: re.findall("<h2>(.*?)</h2>", read(report.build([path])))
  assert titles() == ["Accuracy", "Fine-tune", "Memory", "Seeds", "Repeat"]
  results = json.loads(read(path / "results.json"))
  losses = {"loss_before": 2.0, "loss_learned": 1.0, "loss_kept": 1.5}
  for run in results["runs"]:
    run["phases"][0]["diagnostics"] = {"exemplars": losses}
  (path / "results.json").write_text(json.dumps(results))
  text = read(report.build([path]))
  assert "as the codec keeps them" in text and "1.5000" in text
  assert titles()[2] == "Learning exemplars"
  path = report_fixture.write(tmp_path / "one", finetune=False, seeds=(0,))
  assert titles() == ["Accuracy", "Memory", "Repeat"]
  assert "There is one seed" in read(path / "report.html")


def test_moments_are_old_and_new_classes_without_a_fine_tune(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(page, "DRAWERS", (lines.moment_curves,))
  path = report_fixture.write(tmp_path / "run", finetune=False, seeds=(0,))
  assert "Old and new classes</h2>" in read(report.build([path]))
  results = json.loads(read(path / "results.json"))
  for phase in results["runs"][0]["phases"]:
    del phase["moments"]
  (path / "results.json").write_text(json.dumps(results))
  text = read(report.build([path]))
  # What was drawn of an earlier state is not shown.
  assert (path / "figures" / "moments.png").exists()
  assert "Old and new classes" not in text and "Fine-tune" not in text


def test_a_failure_and_what_may_help_stand_at_the_top(tmp_path, no_figures):
  path = report_fixture.write(tmp_path / "run", seeds=(0,))
  assert 'class="warning"' not in read(report.build([path]))
  results = json.loads(read(path / "results.json"))
  results["runs"][0]["phases"][-1]["by_group"]["head"][0] = 0.1
  (path / "results.json").write_text(json.dumps(results))
  text = read(report.build([path]))
  assert re.search(
    '<p class="lead">In the end .* of all 5 classes. The first three classes are'
    " hardly recognised: .* at the end.</p>",
    text,
  )
  assert '<p class="warning">What may help: <code>finetune=head</code>' in text


def test_hostile_names_are_shown_and_not_run(tmp_path, no_figures):
  runs = []
  for label in ("one", NAMES[0].replace("/", "")):
    path = report_fixture.write(tmp_path / label, seeds=(0,), names=NAMES)
    results = json.loads(read(path / "results.json"))
    results |= {"dataset": NAMES[1], "title": f"{NAMES[0]} · {label}"}
    (path / "results.json").write_text(json.dumps(results))
    config = json.loads(read(path / "config.json"))
    config["command"] = NAMES[0]
    config["settings"] |= {NAMES[1]: NAMES[2], "data": f"{NAMES[3]}/{label}"}
    (path / "config.json").write_text(json.dumps(config))
    runs.append(path)
  single = read(report.build(runs[:1]))
  compared = read(report.build(runs, tmp_path / "both.html"))
  for text in (single, compared):
    shown = Browser(text)
    assert not shown.tags & {"script", "iframe", "object", "embed", "form"}
    for name, value in shown.attributes:
      assert not name.startswith("on")
      if name == "src":
        assert value.startswith("data:")
      if name == "href":  # Nothing that a browser takes for a scheme.
        assert ":" not in value or value == "data:,"
    # Shown whole, in captions and where an image has to be described.
    words = "".join(shown.text)
    described = [value for name, value in shown.attributes if name == "alt"]
    for name in NAMES:
      assert text is compared or name in words
      assert text is compared or any(name in each for each in described)
    # Even what slipped through could not act.
    policy = [value for name, value in shown.attributes if name == "content"]
    assert any(value.startswith("default-src 'none'") for value in policy)


def test_every_text_of_a_page_is_text():
  """A value that means something in HTML, in every field there is."""
  pixels = render.Pixels(np.zeros((1, 1, 3), np.uint8), EVIL, 1, EVIL, EVIL)
  table = Table([EVIL, EVIL], [[EVIL, EVIL]], [[EVIL] * 2], [(EVIL, 2)])
  strip = render.Sheet([EVIL], [(EVIL, [pixels])], EVIL, Path(EVIL))
  section = Section(
    EVIL,
    command=EVIL,
    text=[EVIL],
    tables=[table],
    links={EVIL: Path(EVIL)},
    tiles=[pixels],
    sheets=[strip],
    runs=[render.Link(Path(EVIL), EVIL, EVIL)],
    facts=[(EVIL, {EVIL: EVIL}), ("", {EVIL: {EVIL: [EVIL]}})],
    notes=[EVIL],
    files=[Path(EVIL)],
  )
  whole = Page(
    *(EVIL, EVIL),
    opening=[Paragraph(EVIL, "lead"), Paragraph(EVIL, "advice")],
    cards=[(EVIL, EVIL, EVIL)],
    caveat=EVIL,
    sections=[section, dataclasses.replace(section, kind="group")],
    menu=True,
  )
  shown = Browser(render.html(whole, Path()))
  assert "b" not in shown.tags
  assert not any(name == "onclick" for name, _ in shown.attributes)
  words = "".join(shown.text)
  assert words.count(EVIL) > 40
  # Backticks mark code in advice, and nowhere else.
  assert words.count(EVIL.replace("`", "")) == 1


def test_backticks_of_advice_are_code():
  opening = [Paragraph("try `a<b` or <i>", "advice"), Paragraph("one ` alone")]
  text = rendered(opening=opening)
  assert "try <code>a&lt;b</code> or &lt;i&gt;" in text
  assert "<p>one ` alone</p>" in text


def test_a_table_has_its_cells_and_marks_what_is_reported():
  data = Table(
    ["phase", f"head{REPORTED}", "nme"],
    [["0", "90.00", EVIL], ["1", "80.00", f"70.00{REPORTED}"]],
    footer=[["average", "85.00", "–"]],
  )
  found = cells(data)
  assert found.rows == [
    ["phase", "head", "nme"],
    ["0", "90.00", EVIL],
    ["1", "80.00", "70.00"],
    ["average", "85.00", "–"],
  ]
  reported = [
    [index for index, names in enumerate(row) if "reported" in names]
    for row in found.classes
  ]
  assert reported == [[1], [1], [1, 2], [1]]


def test_groups_stand_above_their_columns():
  data = Table(["a", "b", "c"], [["1", "2", "3"]], groups=[("", 1), ("N", 2)])
  text = rendered(Section(tables=[data]))
  assert '<td colspan="1"></td><th colspan="2" scope="colgroup">N</th>' in text


def test_only_a_difference_that_is_sure_has_a_colour():
  values = ["+2.00 ± 1.99", "−2.00 ± 1.99", "+2.00 ± 2.00", "−0.10 ± 0.20"]
  header = ["run", "sure", "sure", "no", "no", "one"]
  found = cells(Table(header, [["a", *values, "+9.00"]]))
  assert found.rows[1][1:] == [*values, "+9.00"]
  # Of one seed nothing is sure.
  assert found.classes[1][1:] == [["up"], ["down"], [], [], []]


def test_long_tables_scroll():
  for count in (12, 13):
    text = rendered(Section(tables=[Table(["a"], [["1"]] * count)]))
    assert ("scroll tall" in text) == (count == 13)


def test_settings_are_pairs_with_nested_ones_in_a_line():
  facts = {"seeds": [0, 1], "packages": {"jax": "1", "flax": "2"}}
  text = rendered(Section(facts=[("Settings", facts)]))
  assert "<dt>seeds</dt><dd>0, 1</dd>" in text
  assert "<dt>packages</dt><dd>jax 1, flax 2</dd>" in text


def test_a_page_is_markdown_too(tmp_path):
  run = report.load_run(report_fixture.write(tmp_path / "run"))
  figures = page._Figures(run.path, frozenset())
  text = render.markdown(page.single(run, figures), run.path)
  assert text.startswith(f"# {run.results['title']}\n\nIn the end the ")
  assert "- Average accuracy: 79.0 % (± 12.7 · mean of 3 phases)" in text
  assert "## Accuracy\n\nAfter every phase the network is tested" in text
  assert "| phase | classes | **head** | nme |\n|---|---:|---:|---:|\n" in text
  assert "| average |  | 79.00 ± 12.71 | 74.00 ± 12.71 |" in text
  assert "### Read-out head\n\n| phase | old classes, before |" in text
  assert "### Settings\n\n- method: `lucir`\n" in text
  assert "\n\n\n" not in text and text.endswith("`\n")


def test_cells_of_markdown_do_not_end_early():
  table = Table(["a", "b"], [["x|y", "1"]], groups=[("", 1), ("N", 1)])
  assert render.markdown_table(table).splitlines() == [
    "| a | N, b |", "|---|---:|", "| x\\|y | 1 |",
  ]  # fmt: skip


@pytest.fixture
def curve(monkeypatch):
  """Draws one figure of runs, and none of comparisons, to save time."""
  monkeypatch.setattr(page, "DRAWERS", (lines.phase_curve,))
  monkeypatch.setattr(page, "COMPARISONS", ())


def take_no_figures(path):
  """Makes a run that fails to hold figures, as on a disk that is read only."""
  (path / "figures").write_text("not a directory")
  return {file: file.stat().st_mtime_ns for file in path.rglob("*")}


def test_a_run_that_cannot_be_written_to_has_a_page_elsewhere(tmp_path, curve):
  path = report_fixture.write(tmp_path / "run", seeds=(0,))
  before = take_no_figures(path)
  with pytest.raises(OSError, match="figures"):
    report.build([path])
  found = report.build([path], tmp_path / "out" / "mine.html")
  assert found == tmp_path / "out" / "mine.html"
  assert 'href="mine_figures/phase_curve.csv"' in read(found)
  names = {file.name for file in (tmp_path / "out").rglob("*.*")}
  assert names == {"mine.html", "phase_curve.png", "phase_curve.csv"}
  # Figures of the default page have the default place.
  found = report.build([path], tmp_path / "out")
  assert 'href="figures/phase_curve.csv"' in read(found)
  after = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
  assert after == before


def test_a_comparison_has_the_pages_its_runs_cannot_hold(tmp_path, curve):
  one = report_fixture.write(tmp_path / "one", seeds=(0,))
  two = report_fixture.write(tmp_path / "two", seeds=(0,), exemplars="random")
  before = take_no_figures(two)
  with pytest.raises(OSError, match="figures"):
    report.build([one, two])
  found = report.build([one, two], tmp_path / "both.html")
  links = re.findall('<li><a href="(.*?)">', read(found))
  assert links == ["one/report.html", "both_2.html"]
  assert "both_2_figures/phase_curve.csv" in read(tmp_path / "both_2.html")
  assert {f: f.stat().st_mtime_ns for f in two.rglob("*")} == before


def test_a_link_in_place_of_figures_is_not_followed(tmp_path, curve):
  path = report_fixture.write(tmp_path / "run", seeds=(0,))
  elsewhere = tmp_path / "elsewhere"
  elsewhere.mkdir()
  (path / "figures").symlink_to(elsewhere)
  for write in (report.write_figures, lambda path: report.build([path])):
    with pytest.raises(report.WorkdirError, match="is a link") as caught:
      write(path)
    assert "`output`" in str(caught.value)
  assert not list(elsewhere.iterdir())
  assert read(report.build([path], tmp_path / "mine.html"))
  assert not list(elsewhere.iterdir())


def test_runs_on_other_data_are_never_compared(tmp_path, monkeypatch):
  monkeypatch.setattr(page, "DRAWERS", ())
  paths = [
    report_fixture.write(tmp_path / "one"),
    report_fixture.write(tmp_path / "two", exemplars="mnemonics", offset=0.02),
    report_fixture.write(tmp_path / "other", names=list("abcde"), offset=0.05),
  ]
  text = read(report.build(paths))
  assert "do not learn the same data" in text
  first, second = text.split('<h2 class="group">')[1:]
  assert "mnemonics has the highest average accuracy, 81.0\u00a0%" in first
  assert "84.0" not in first and "of a, b, c" not in first
  assert "has the highest" not in second and "<table>" not in second
  assert 'href="../other/report.html"' in second
  drawn = {path.name for path in (paths[0] / "figures").glob("comparison*")}
  assert drawn == {
    *("comparison_head_1.png", "comparison_head_1.csv"),
    *("comparison_nme_1.png", "comparison_nme_1.csv"),
  }


def test_runs_that_differ_in_seeds_are_compared_as_one(tmp_path, no_figures):
  paths = [
    report_fixture.write(tmp_path / f"{kind}{seed}", exemplars=kind, **options)
    for kind, more in (("herding", 0.0), ("mnemonics", 0.04))
    for seed in (0, 1)
    for options in [dict(seeds=(seed,), offset=more)]
  ]
  text = read(report.build(paths))
  assert "mnemonics has the highest average accuracy, 83.0\u00a0%" in text
  assert "+4.00 ± 0.00" in text
  # Each run still has a page of its own.
  found = re.findall('<li><a href="(.*?)">', text)
  others = [f"../{path.name}/report.html" for path in paths[1:]]
  assert found == ["report.html", *others]
  assert all((paths[0] / each).exists() for each in found)
  both = report.build(paths[:2], tmp_path / "seeds.html")
  assert "differ in their seeds only" in read(both)


def _cut(name, text=None):
  """Damages a file of a run: it is gone, or holds this."""

  def damage(path):
    (path / name).unlink()
    if text is not None:
      (path / name).write_bytes(text)

  return damage


def _gone(path):
  shutil.rmtree(path)


def _unknown(path):
  _cut("results.json")(path)
  _cut("metrics.jsonl")(path)


def _edited(change):
  def damage(path):
    results = json.loads(read(path / "results.json"))
    change(results)
    (path / "results.json").write_text(json.dumps(results))

  return damage


@pytest.mark.parametrize(
  ("damage", "sentence"),
  [
    (_gone, "There is no directory"),
    (_cut("results.json"), "is not finished"),
    (_unknown, "has no results.json"),
    (_cut("results.json", b'{"title": '), "results.json is damaged"),
    (_cut("results.json", b"\xff\xfe\x00"), "results.json is damaged"),
    (
      _edited(lambda r: r["runs"][0]["phases"][1].pop("by_group")),
      r"runs\[0\].phases\[1\] lacks by_group",
    ),
    (
      _edited(lambda r: r["summary"]["head"]["per_phase"].pop()),
      "summary.head.per_phase does not have 3 entries",
    ),
  ],
)
def test_a_run_that_cannot_be_read_gets_a_sentence(tmp_path, damage, sentence):
  path = report_fixture.write(tmp_path / "run", groups=(1, 1, 1), seeds=(0,))
  damage(path)
  with pytest.raises(report.WorkdirError, match=sentence) as caught:
    report.build([path])
  # What is wrong, and what to do about it.
  assert re.fullmatch(r".+; [a-z].+\.", str(caught.value))


@pytest.fixture
def learned(tmp_path):
  return report_fixture.write(
    tmp_path / "run", groups=(1, 1, 1), seeds=(0, 1), learned=True
  )


def test_damaged_files_are_named_on_the_page_and_left_out(learned):
  archive = learned / "seed_0" / "phase_02.npz"
  archive.write_bytes(b"PK\x03\x04 not an archive")
  code = {"confusion/final/head": np.array([print], dtype=object)}
  np.savez(learned / "seed_1" / "phase_02.npz", **code)
  truncated = learned / "seed_0" / "phase_01.npz"
  truncated.write_bytes(truncated.read_bytes()[:200])
  log = layout.metrics_path(learned)
  first, second, *others = log.read_text().splitlines(keepends=True)
  log.write_text("".join([first, second[:9], "\n", *others[:-1]]))
  text = html.unescape(read(report.build([learned])))
  for path in (archive, learned / "seed_1" / "phase_02.npz", truncated):
    assert f"{path} is damaged (" in text
  assert f"{log} is damaged: line 2 is not a JSON object" in text
  assert f"{log} lacks 1 of 6 phases" in text


def test_deleted_metrics_are_noticed(learned):
  whole = report.load_run(learned)
  assert whole.metrics and whole.arrays(1, 2) and whole.problems == []
  layout.metrics_path(learned).unlink()
  loaded = report.load_run(learned)
  assert loaded.metrics == []
  (problem,) = loaded.problems
  assert "lacks 6 of 6 phases" in problem


@pytest.mark.parametrize("harm", ["lost", "wrong"])
def test_an_unfinished_run_is_known_up_to_the_damage(learned, harm, no_figures):
  results = layout.read_results(learned)
  fields = results.keys() - {"seeds", "runs", "summary"}
  header = {name: results[name] for name in fields}
  layout.results_path(learned).unlink()
  layout.write_config(learned, {"results": header})
  written = []
  for record in results["runs"]:
    for phase in record["phases"]:
      line = {"kind": "phase", "seed": record["seed"], "seconds": {}, **phase}
      if phase["phase"] == 1 and record["seed"] == 1:
        if harm == "lost":
          continue
        line["accuracy"] = "high"
      written.append(json.dumps(line) + "\n")
  layout.metrics_path(learned).write_text("".join(written))
  found = report.load_run(learned, unfinished=True)
  assert found.results["classes_per_phase"] == [1]
  assert found.phases_left == 2
  text = read(report.build([learned]))
  assert (
    '<p class="warning">This run has not ended: 1 of 3 phases are shown here.'
  ) in text


@pytest.fixture(scope="module")
def browser():
  names = ("chromium", "chromium-browser", "google-chrome")
  executable = next(filter(None, map(shutil.which, names)), None)
  if executable is None:
    pytest.skip("no browser installed: Chromium or Chrome is needed")
  playwright = pytest.importorskip("playwright.sync_api")
  arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
  with playwright.sync_playwright() as p:
    found = p.chromium.launch(executable_path=executable, args=arguments)
    yield found
    found.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["single", "comparison"])
def test_in_a_browser(browser, pages, name, width):
  page = browser.new_page(viewport={"width": width, "height": 800})
  trouble, requests = [], []
  page.on("console", lambda message: trouble.append(message.text))
  page.on("pageerror", lambda error: trouble.append(str(error)))
  page.on("dialog", lambda dialog: trouble.append(dialog.message))
  page.on("request", lambda request: requests.append(request.url))
  page.goto(pages[name].as_uri())
  for details in page.query_selector_all("details"):
    details.evaluate("d => { d.open = true; }")
  assert trouble == []
  assert all(url.startswith(("file:", "data:")) for url in requests)
  assert sum(url.startswith("file:") for url in requests) == 1
  broken = "[...document.images].filter(i => !i.naturalWidth).length"
  assert page.evaluate("document.images.length") >= 3
  assert page.evaluate(broken) == 0
  assert page.evaluate("document.documentElement.scrollWidth") <= width
  # What is wider than the window scrolls, and an arrow says so until the end.
  arrows = """[...document.querySelectorAll(".scroll")].map(e => [
    e.scrollWidth > e.clientWidth,
    Number(getComputedStyle(e, "::after").opacity)])"""
  found = page.evaluate(arrows)
  assert all(opacity == wide for wide, opacity in found)
  assert any(wide for wide, _ in found) == (width == 390)
  page.evaluate(
    "document.querySelectorAll('.scroll').forEach(e => e.scrollLeft = 9999)"
  )
  page.wait_for_timeout(100)
  assert all(opacity == 0 for _, opacity in page.evaluate(arrows))
  shown = page.inner_text("body")
  assert (report_fixture.SCRIPT_NAME in shown) == (name == "single")
  assert page.evaluate("document.scripts.length") == 0
  page.close()
