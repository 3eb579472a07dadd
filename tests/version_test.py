"""Other numbers are another version: runs and base models are found by it."""

import pytest
from support import golden

from mnemonics_jax.package import NUMERICS

HINT = (
  "Runs end elsewhere than before. If that is meant: raise NUMERICS in"
  " mnemonics_jax/package.py, then write the new golden numbers down with"
  " `PYTHONPATH=tests:. python -m support.golden`."
)


def test_other_numbers_are_another_version_of_the_numerics():
  expected = golden.written().get(str(NUMERICS))
  assert expected is not None, HINT
  found = golden.measure()
  assert found.keys() == expected.keys(), HINT
  for name, values in expected.items():
    # Rounding of another CPU or compiler stays below a hundredth of this.
    assert found[name] == pytest.approx(values, rel=1e-4), f"{name}. {HINT}"


def test_what_was_written_down_is_not_replaced(monkeypatch, tmp_path):
  monkeypatch.setattr(golden, "PATH", tmp_path / "golden.json")
  one, two = {"loss": [1.0]}, {"loss": [2.0]}
  numbers = iter([one, two, two | {"new": [3.0]}, two])
  monkeypatch.setattr(golden, "measure", lambda: next(numbers))
  monkeypatch.setattr(golden, "NUMERICS", 7)
  golden.main()
  with pytest.raises(SystemExit, match="raise NUMERICS first"):
    golden.main()
  golden.main()  # A run is new.
  monkeypatch.setattr(golden, "NUMERICS", 8)
  golden.main()
  assert golden.written() == {
    "7": {"loss": [1.0], "new": [3.0]},
    "8": {"loss": [2.0]},
  }
