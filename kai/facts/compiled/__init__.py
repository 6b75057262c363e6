"""How kernels become machine code: the only code that imports numba.

Functions with annotated parameters enter; the same functions leave, plain or compiled, and the compiled forms are kept
in a cache on disk. Begin with `jit`. The README in this folder lists the private names of numba that are used, and what
to do when a release of numba breaks one.
"""
