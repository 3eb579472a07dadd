"""Convolutions for CPUs: kernels in C++, built on the machine that runs them.

`form(name)` gives one of the three maps of `mnemonics_jax.nn.conv` as JAX runs it on
a CPU. README.md describes the files.
"""

from mnemonics_jax.cpu_conv.calls import VARIABLE, Choice, choose, form, news

__all__ = ["VARIABLE", "Choice", "choose", "form", "news"]
