"""Convolutions of our own for CPUs, compiled on the machine that runs them.

conv.cc    the three maps in C++, as calls that XLA makes; its parts are direct.h,
           winograd.h with its schemes.h, and what these share, axes.h and tiles.h
build.py   compiles them once and keeps the library
choice.py  whether this process uses them, and why not
calls.py   the maps as JAX sees them
"""

from mnemonics_jax.nn.native.choice import Choice, choose

__all__ = ["Choice", "choose"]
