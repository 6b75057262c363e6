"""Arithmetic: kernels over columns, compiled or plain, each with a plain twin in the tests; imports nothing of kai.

``kai.facts.compiled.warm`` has all of them compiled beforehand; importing it imports the compiler.
"""

from kai.facts.compiled.jit import begin_plainly, is_plain, run_compiled, run_plainly

__all__ = ["begin_plainly", "is_plain", "run_compiled", "run_plainly"]
