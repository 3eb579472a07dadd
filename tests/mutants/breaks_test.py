"""The list of breaks fits the code it breaks."""

import json
from pathlib import Path

from mutants import run
from mutants.breaks import breaks
from mutants.generate import COUNT, generated
import pytest

ROOT = Path(__file__).parents[2]
BREAKS = [*breaks()]


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_every_break_applies_to_one_place(broken):
  text = (ROOT / broken.file).read_text(encoding="utf-8")
  assert text.count(broken.old) == 1
  changed = run.applied(text, broken)
  assert changed != text
  compile(changed, broken.file, "exec")
  assert broken.tests
  for name in broken.tests:
    assert (ROOT / "tests" / name).exists()


def test_there_are_many_and_each_is_there_once():
  assert len(BREAKS) >= 60
  assert len({(b.file, b.old, b.new) for b in BREAKS}) == len(BREAKS)


def test_generated_breaks_change_one_place_each():
  found, few = generated(), generated(20)
  assert len(found) == COUNT and few == [b for b in found if b in few]
  assert len({b.file.split("/")[1] for b in found}) > 8
  for broken in found:
    text = (ROOT / broken.file).read_text(encoding="utf-8")
    assert text.count(broken.old) == 1 and broken.tests
    assert broken.old.split() != broken.new.split()
    compile(run.applied(text, broken), broken.file, "exec")


def test_the_ledger_follows_what_was_tried(tmp_path, monkeypatch):
  monkeypatch.setattr(run, "LEDGER", tmp_path / "survivors.json")
  run.LEDGER.write_text("[]")
  run.record(survivors=BREAKS[:2], killed=BREAKS[2:4])
  run.record(survivors=[], killed=BREAKS[:1])
  assert json.loads(run.LEDGER.read_text()) == [run.entry(BREAKS[1])]


def test_a_sample_is_the_same_for_the_same_seed():
  pick = lambda seed: run.sample(BREAKS, 10, seed)
  assert pick(0) == pick(0) != pick(1)
  assert len(pick(0)) == 10
  order = [BREAKS.index(b) for b in pick(0)]
  assert order == sorted(order)
  assert run.sample(BREAKS, None, 0) == BREAKS


def test_a_break_is_killed_by_a_test_that_fails(tmp_path):
  (tmp_path / "tests").mkdir()
  (tmp_path / "code.py").write_text("def two():\n  return 2\n")
  check = "from code import two\n\ndef test():\n  assert two() {}\n"
  for name, condition in {"strict": "== 2", "lax": "> 0"}.items():
    (tmp_path / "tests" / f"{name}_test.py").write_text(
      check.format(condition).replace("code", "broken_code")
    )
  (tmp_path / "code.py").rename(tmp_path / "broken_code.py")
  of = lambda *tests: run.Break("broken_code.py", "2\n", "3\n", tests)
  assert run.try_break(tmp_path, of("strict_test.py")).killed
  assert not run.try_break(tmp_path, of("lax_test.py")).killed
  assert run.try_break(tmp_path, of("lax_test.py", "strict_test.py")).killed
  # The file is whole again.
  assert "return 2" in (tmp_path / "broken_code.py").read_text()
