"""Measurements of the program as it runs, on a real API server: see `benchmarks.live.command`."""
