"""A plugin of pytest that registers toys: one entry each, and nothing else.

It registers those of the files that pytest is asked to run. `TOYS` names the
test that must fail for each toy that breaks a promise.
"""

from pathlib import Path

from mnemonics_jax import registry

FAMILIES = {
  "methods_test.py": registry.METHODS,
  "networks_test.py": registry.NETWORKS,
  "codecs_test.py": registry.CODECS,
  "readouts_test.py": registry.READOUTS,
  "strategies_test.py": registry.EXEMPLARS,
}
# Its name, what it is, and the test that fails.
TOYS = {
  "methods_test.py": {
    "toy": ("Replay", None),
    "toy_of_another_name": ("OfAnotherName", "test_its_entry_says_what_it_is"),
    "toy_without_identity": ("WithoutIdentity", "test_it_can_be_written_down"),
    "toy_sees_the_future": (
      "SeesTheFuture",
      "test_its_loss_reads_seen_classes_alone",
    ),
    "toy_idle": ("Idle", "test_it_learns"),
    "toy_greedy": ("Greedy", "test_the_images_of_old_classes_are_not_read"),
    "toy_moves_held_rows": (
      "MovesHeldRows",
      "test_rows_that_are_held_stay_to_the_bit",
    ),
    "toy_grows": ("Grows", "test_the_third_phase_compiles_nothing"),
    "toy_forgets": ("Forgets", "test_a_phase_continues_to_the_bit"),
  },
  "networks_test.py": {
    "toy": ("flat", None),
    "toy_blind": ("blind", "test_gradients_reach_pixels_and_parameters"),
    "toy_unnormalised": ("unnormalised", "test_images_are_normalised_inside"),
    "toy_full": ("full", "test_half_precision_stays_inside"),
  },
  "codecs_test.py": {
    "toy": ("Inverted", None),
    "toy_lossy": ("Lossy", "test_images_come_back_exact_or_nearly"),
    "toy_one_way": ("OneWay", "test_files_are_pictures_for_other_programs"),
  },
  "readouts_test.py": {
    "toy": ("NearestExemplar", None),
    "toy_unseen": ("Unseen", "test_seen_classes_have_a_score_each"),
    "toy_together": ("Together", "test_images_are_scored_one_by_one"),
  },
  "strategies_test.py": {
    "toy": ("Darkest", None),
    "toy_twice": (
      "Twice",
      "test_exemplars_are_images_of_their_class_or_learned_from_such",
    ),
    "toy_lazy": ("Lazy", "test_a_class_keeps_as_many_as_its_budget_allows"),
    "toy_relative": (
      "Relative",
      "test_images_are_judged_as_if_all_were_looked_at_together",
    ),
    "toy_moody": ("Moody", "test_a_phase_continues_to_the_bit"),
  },
}


def pytest_configure(config):
  files = {Path(name.partition("::")[0]).name for name in config.args}
  for file in files & FAMILIES.keys():
    for name, (toy, _) in TOYS[file].items():
      FAMILIES[file][name] = _entry(toy, file == "methods_test.py")
  if "museum_test.py" in files:
    registry.READOUTS["toy"] = _entry("NearestExemplar")


def _entry(toy, is_method=False):
  place, words = f"contracts.toys:{toy}", "a toy"
  if is_method:
    return registry.MethodEntry(place, words, toy, readout="head")
  return registry.Entry(place, words)
