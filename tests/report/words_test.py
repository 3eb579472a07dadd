"""Numbers and lists in sentences."""

import pytest

from mnemonics_jax.report import words


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
