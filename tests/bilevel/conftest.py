"""What tests of the bilevel program share."""

import jax
import pytest


@pytest.fixture
def x64():
  with jax.enable_x64(True):
    yield
