"""Arithmetic: numba kernels over columns, each with a plain twin in the tests; imports nothing of kai."""

from kai.kernels.warm import Warmth, warm

__all__ = ["Warmth", "warm"]
