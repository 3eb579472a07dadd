"""Checkpoints are found by their names, in the order in which they were made."""

import pytest

from mnemonics_jax.runs import checkpoint_names


@pytest.mark.parametrize(
  ("name", "number"),
  [
    ("phase_00", (0, None)),
    ("phase_12", (12, None)),
    ("phase_100", (100, None)),
    ("phase_03_part_000", (3, 0)),
    ("phase_03_part_1234", (3, 1234)),
  ],
)
def test_names_of_checkpoints_and_back(name, number):
  assert checkpoint_names.name(*number) == name
  assert checkpoint_names.parse(name) == number


@pytest.mark.parametrize(
  "name",
  ["damaged_phase_03", "phase_03.partial-1", "phase_3", "phase_03_part_7"],
)
def test_other_names_are_no_checkpoints(name):
  assert checkpoint_names.parse(name) is None


def test_they_are_listed_in_the_order_of_the_run(tmp_path):
  names = ["phase_100", "phase_99", "phase_99_part_1000", "phase_99_part_999"]
  for name in [*names, "damaged_phase_03", "phase_03.partial-1"]:
    (tmp_path / "seed_1" / "checkpoints" / name).mkdir(parents=True)
  there = tmp_path / "seed_1" / "checkpoints"
  assert checkpoint_names.of_phases(there) == ["phase_99", "phase_100"]
  parts = ["phase_99_part_999", "phase_99_part_1000"]
  assert checkpoint_names.of_parts(there) == parts
  assert checkpoint_names.of_parts(there, 99) == parts
  assert checkpoint_names.of_parts(there, 98) == []
  assert checkpoint_names.saved_phases(tmp_path, 1) == [99, 100]
