"""Flags of learned exemplars are settings, and shared by all experiments."""

import dataclasses

from absl import flags

from experiments import exemplar_flags, options
from experiments.settings import Settings


def test_they_are_settings_and_no_flag_decides_without_being_given():
  mine = flags.FLAGS.get_key_flags_for_module(exemplar_flags)
  fields = {field.name for field in dataclasses.fields(Settings)}
  assert len(mine) > 10
  assert {flag.name for flag in mine} <= fields
  assert all(flag.default is None for flag in mine)
  shared = flags.FLAGS.get_key_flags_for_module(options)
  assert {flag.name for flag in mine} <= {flag.name for flag in shared}
