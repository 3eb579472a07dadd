"""What the tests of learners share."""

import pytest
from support.learners import many


@pytest.fixture(scope="module")
def learned():
  """Nine classes in four phases; before the last one the head grows."""
  return many()
