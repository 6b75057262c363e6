"""Generate workloads, and run them: ``python -m benchmarks --help``."""

from benchmarks.command import main

main()
