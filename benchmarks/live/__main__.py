"""Measure the program as it runs: ``python -m benchmarks.live --help``."""

from benchmarks.live.command import main

main()
