"""Results as text: hand-computed tables, columns that line up, words."""

import json
import math

import pytest
from support import report_fixture

from mnemonics_jax import report
from mnemonics_jax.report import tables, words


@pytest.fixture
def results(tmp_path):
  return report.load_run(report_fixture.write(tmp_path / "run")).results


def test_console_table_of_two_seeds(results):
  # Phase 0: 0.90 and 0.88 for head; t = 12.706 at one degree of freedom, so
  # 0.89 ± 12.706 * 0.01. nme is 0.05 lower.
  text = report.console_table(results)
  rows = [line.split() for line in text.splitlines()]
  assert ["0", "3", "89.00", "±", "12.71", "84.00", "±", "12.71"] in rows
  assert ["2", "5", "69.00", "±", "12.71", "64.00", "±", "12.71"] in rows
  assert ["average", "79.00", "±", "12.71", "74.00", "±", "12.71"] in rows
  assert ["forgetting", "11.00", "±", "12.71", "8.00", "±", "0.00"] in rows
  assert ["phase", "classes", "head", "*", "nme"] in rows
  assert "2 seeds" in text


def test_console_columns_line_up(results):
  lines = report.console_table(results).splitlines()
  header = next(line for line in lines if line.startswith("phase"))
  body = [line for line in lines if "±" in line and "accuracy" not in line]
  head = header.index("head") + len("head")
  for line in body:
    numbers = line[:head].split()
    assert numbers[-2] == "±"  # The head column ends where its name ends, ...
    assert len(line) == len(header)  # ... and so does the last column.


def test_console_table_of_one_seed(tmp_path):
  path = report_fixture.write(tmp_path / "run", seeds=(0,))
  text = report.console_table(json.loads((path / "results.json").read_text()))
  assert "±" not in text
  assert "average              80.00    75.00" in text


def test_seed_table(results):
  table = tables.seed_table(results)
  assert table.rows[1] == [
    "1", "68.00", "63.00", "78.00", "73.00", "10.00", "8.00"
  ]  # fmt: skip


def test_finetune_table_shows_old_and_new_side_by_side(results):
  # Seeds have 0.80 and 0.78 in phase 1: old 0.79 - 0.02, new 0.79 + 0.03;
  # before the fine-tune old is 0.04 lower and new 0.02 higher.
  table = tables.finetune_table(results, "head")
  assert table.rows[0][1:4] == ["–", "–", "–"]
  assert table.rows[1] == [
    "1",
    "73.00", "77.00", "+4.00 ± 0.00",
    "84.00", "82.00", "−2.00 ± 0.00",
    "75.00", "79.00", "+4.00 ± 0.00",
  ]  # fmt: skip
  # One seed has no interval.
  one = tables.finetune_table(results | {"runs": results["runs"][:1]}, "head")
  assert one.rows[1][3] == "+4.00"


def test_finetune_table_only_when_something_moved(tmp_path):
  path = report_fixture.write(tmp_path / "run", finetune=False)
  results = report.load_run(path).results
  assert tables.finetune_table(results, "head") is None
  for run in results["runs"]:
    for phase in run["phases"]:
      del phase["moments"]
  assert tables.finetune_table(results, "head") is None


def test_what_coding_leaves_of_learning(results):
  assert tables.coding_table(results) is None
  for seed, run in enumerate(results["runs"]):
    run["phases"][1]["diagnostics"] = {
      "exemplars": {
        "loss_before": 2.0 + seed,
        "loss_learned": 1.0,
        "loss_kept": 1.25 + seed / 2,
      }
    }
  table = tables.coding_table(results)
  assert table.header == ["phase", "before", "learned", "learned, then coded"]
  # The means of 2 and 3, 1 and 1, 1.25 and 1.75.
  assert table.rows == [["1", "2.5000", "1.0000", "1.5000"]]


def test_comparison_pairs_seeds(results):
  other = json.loads(json.dumps(results))
  for run, gain in zip(other["runs"], (0.01, 0.03), strict=True):
    run["average"]["head"] += gain
  # Differences 0.01 and 0.03: mean 0.02, half-width 12.706 * 0.01.
  table = tables.comparison_table(["a", "b"], [results, other], "head")
  assert [row[4] for row in table.rows] == ["–", "+2.00 ± 12.71"]
  # Averages over other phases are about something else.
  shorter = results | {"classes_per_phase": [4, 1]}
  assert tables.paired_difference(other, shorter, "head") is None
  # The other run may be reported by another read-out: 0.74 against 0.76, 0.78.
  mean, _ = tables.paired_difference(other, results, "head", "nme")
  assert mean == pytest.approx(0.07)
  other["runs"][0]["seed"] = 7
  assert tables.paired_difference(other, results, "head") is None


def test_negative_numbers_have_a_minus_sign():
  assert tables.percent(-0.0123) == "−1.23"
  assert tables.points(-0.0123) == "−1.23"
  assert tables.points(0.00012) == "+0.01"
  assert tables.points(-0.00001) == tables.points(0.0) == "0.00"
  assert tables.interval({"mean": 0.5, "ci95": None}) == "50.00"
  assert math.isclose(float(tables.percent(0.12345)), 12.35, abs_tol=0.006)


@pytest.mark.parametrize(
  "fraction, text",
  [(0, "0"), (1, "100"), (0.5, "50.0"), (0.9996, "100.0"), (0.0004, "0.0")],
)
def test_shares_are_whole_only_where_they_are_exact(fraction, text):
  assert words.share(fraction) == f"{text}\u00a0%"


@pytest.mark.parametrize(
  "number, noun, text",
  [
    (0, "class", "no classes"),
    (1, "class", "one class"),
    (2, "phase", "two phases"),
    (10, "seed", "ten seeds"),
    (11, "seed", "11 seeds"),
    (3, "", "three"),
  ],
)
def test_small_numbers_are_words(number, noun, text):
  assert words.count(number, noun) == text


def test_lists_end_with_and():
  assert words.listed([]) == ""
  assert words.listed(["a"]) == "a"
  assert words.listed(["a", "b"]) == "a and b"
  assert words.listed("abcd") == "a, b, c and d"
  assert words.listed("abcdef", most=3) == "a, b, c and three more"


@pytest.mark.parametrize(
  "numbers, text",
  [([7], "7"), ([1, 2], "1 and 2"), ([1, 2, 3], "1 to 3"),
   ([0, 2, 3, 4, 9], "0, 2 to 4 and 9"), ([0, 1, 5, 6, 7], "0, 1 and 5 to 7")],
)  # fmt: skip
def test_neighbours_are_joined(numbers, text):
  assert words.spans(numbers) == text


def test_sentences_begin_with_a_capital():
  assert words.capital("five classes") == "Five classes"
  assert words.capital("") == ""


def test_labels_are_one_line_of_limited_length():
  assert words.shorten("a  b\n c") == "a b c"
  assert words.shorten("x" * 18) == "x" * 18
  assert words.shorten("x" * 19) == "x" * 17 + "…"
  assert len(words.shorten("word " * 9, 12)) == 12


def test_durations_are_words():
  assert words.format_duration(41.6) == "42 s"
  assert words.format_duration(185) == "3 min 05 s"
  assert words.format_duration(7800) == "2 h 10 min"
