"""Names that others have chosen are shown, and never markup."""

import html.parser
import json

from support import report_fixture

from mnemonics_jax import report
from mnemonics_jax.report import page as page_lib

NAMES = [
  "<script>document.title = 'run'</script>",
  '"><img src=x onerror="document.title = \'run\'">',
  "' onmouseover='document.title = 1",
  "</figcaption></title></style><iframe src=https://example.com>",
  "&lt;b&gt; {{ 7 * 7 }} $x_1",
]


class Page(html.parser.HTMLParser):
  """What a browser would make of a page."""

  def __init__(self, text: str):
    super().__init__()
    self.tags, self.attributes, self.text = set(), [], []
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    self.tags.add(tag)
    self.attributes += attrs

  def handle_data(self, data):
    self.text.append(data)


def test_names_are_shown_and_not_run(tmp_path, monkeypatch):
  # Drawing takes long, and names in pictures are pixels.
  monkeypatch.setattr(page_lib.figures, "write_figures", lambda run: [])
  monkeypatch.setattr(page_lib.figures, "write_comparison", lambda *_: [])
  runs = []
  for label in ("one", NAMES[0].replace("/", "")):
    path = report_fixture.write(tmp_path / label, seeds=(0,), names=NAMES)
    results = json.loads((path / "results.json").read_text())
    results["title"] = f"{NAMES[1]} · {NAMES[2]}"
    results["dataset"] = results["exemplars"] = NAMES[3]
    (path / "results.json").write_text(json.dumps(results))
    config = json.loads((path / "config.json").read_text())
    config["command"] = NAMES[0]
    config["settings"] |= {NAMES[1]: NAMES[2], "data": f"{NAMES[3]}/{label}"}
    (path / "config.json").write_text(json.dumps(config))
    runs.append(path)
  single = report.build(runs[:1]).read_text()
  compared = report.build(runs, tmp_path / "both.html").read_text()
  for text in (single, compared):
    page = Page(text)
    assert not page.tags & {"script", "iframe", "object", "embed", "form"}
    for name, value in page.attributes:
      assert not name.startswith("on")
      if name == "src":
        assert value.startswith("data:")
      if name == "href":  # Nothing that a browser takes for a scheme.
        assert ":" not in value or value == "data:,"
    # Shown whole, in captions and where an image has to be described.
    shown = "".join(page.text)
    described = [value for name, value in page.attributes if name == "alt"]
    for name in NAMES:
      assert text is compared or name in shown
      assert text is compared or any(name in words for words in described)
    # Even what slipped through could not act.
    policy = [value for name, value in page.attributes if name == "content"]
    assert any(value.startswith("default-src 'none'") for value in policy)
