"""Pieces of HTML: what comes from outside is shown and never read."""

import html.parser

from mnemonics_jax.report import markup
from mnemonics_jax.report.tables import REPORTED, Table

EVIL = "<b onclick='x'>&\"`code`"


class Cells(html.parser.HTMLParser):
  """Rows of cells as a browser shows them, and the classes of each."""

  def __init__(self, text):
    super().__init__()
    self.rows, self.classes, self._open = [], [], False
    self.feed(text)

  def handle_starttag(self, tag, attrs):
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
    if self._open:
      self.rows[-1][-1] += data


def test_text_is_never_markup():
  assert markup.text(EVIL) == (
    "&lt;b onclick=&#x27;x&#x27;&gt;&amp;&quot;`code`"
  )
  assert markup.text(3.5) == "3.5"


def test_backticks_are_code_and_the_rest_is_text():
  assert markup.code("try `a<b` or <i>") == (
    "try <code>a&lt;b</code> or &lt;i&gt;"
  )
  assert markup.code("one ` alone") == "one ` alone"


def test_a_table_has_its_cells_and_marks_what_is_reported():
  data = Table(
    ["phase", f"head{REPORTED}", "nme"],
    [["0", "90.00", EVIL], ["1", "80.00", f"70.00{REPORTED}"]],
    footer=[["average", "85.00", "–"]],
  )
  found = Cells(markup.table(data))
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
  text = markup.table(data)
  assert '<td colspan="1"></td><th colspan="2" scope="colgroup">N</th>' in text


def test_long_tables_scroll():
  short, long = (Table(["a"], [["1"]] * count) for count in (12, 13))
  assert "tall" not in markup.table(short) and "tall" in markup.table(long)


def test_settings_are_pairs_with_nested_ones_in_a_line():
  text = markup.pairs({"seeds": [0, 1], EVIL: "x", "packages": {"jax": "1"}})
  assert "<dt>seeds</dt><dd>0, 1</dd>" in text
  assert f"<dt>{markup.text(EVIL)}</dt><dd>x</dd>" in text
  assert "<dt>packages</dt><dd>jax 1</dd>" in text
