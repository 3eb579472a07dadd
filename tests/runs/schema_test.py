"""Shapes of JSON values."""

from mnemonics_jax.runs.schema import Each, Maybe, OrNull, mismatch


def test_shapes():
  shape = {"a": [{"b": OrNull(int)}], "c": Maybe(Each(str))}
  assert mismatch({"a": [{"b": None}, {"b": 1}], "more": 1}, shape) == ""
  assert mismatch({"a": [{"b": 1}], "c": {"x": "y"}}, shape) == ""
  for value, problem in [
    ([], "it should be an object"),
    ({"c": {}}, "lacks a"),
    ({"a": []}, "a should be a list with at least one entry"),
    ({"a": {}}, "a should be a list with at least one entry"),
    ({"a": [{"b": 1}, {}]}, "a[1] lacks b"),
    ({"a": [{"b": "1"}]}, "a[0].b has a wrong type"),
    ({"a": [{"b": 1}], "c": None}, "c should be an object"),
    ({"a": [{"b": 1}], "c": {"x": 1}}, "c.x has a wrong type"),
  ]:
    assert mismatch(value, shape) == problem
