"""The one place that holds the version numbers."""

__version__ = "0.1.0"

NUMERICS = 2
"""Version of the numbers: the same settings, data and seed give the same results.

Base models and runs are found again by it. It grows with every change after which
a run would end elsewhere than before by more than rounding
(`tests/version_test.py` notices).
"""
