"""``python -m kai.kernels warm``: fill the cache of compiled kernels, as the build of an image does."""

import sys
from collections.abc import Sequence

from kai.kernels import warm


def main(arguments: Sequence[str]) -> int:
    """Compile what is not cached yet and say where it is kept; return the exit status of the program."""
    if list(arguments) != ["warm"]:
        sys.stderr.write("usage: python -m kai.kernels warm\n")
        return 2
    found = warm()
    if not found.kernels:
        sys.stderr.write("there are no kernels to compile while NUMBA_DISABLE_JIT is set\n")
        return 1
    if found.directory is None:
        sys.stderr.write(f"{found.kernels} kernels run, but nothing can be kept: NUMBA_CACHE_DIR names no such place\n")
        return 1
    sys.stdout.write(f"{found.kernels} kernels ready, {found.compiled} compiled just now, kept in {found.directory}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
