"""Names of a package are found when they are asked for."""

import pytest

from mnemonics_jax import errors, lazy


def test_names_are_found_where_they_are_defined():
  getter, names = lazy.attach(
    "door", {"UserError": "errors", "errors": "errors"}
  )
  assert getter("UserError") is errors.UserError
  assert getter("errors") is errors  # A name may be the module itself.
  assert names() == ["UserError", "errors"]


def test_other_names_are_missing_as_they_would_be_in_any_module():
  getter, _ = lazy.attach("door", {})
  with pytest.raises(
    AttributeError, match="module 'door' has no attribute 'x'"
  ):
    getter("x")
