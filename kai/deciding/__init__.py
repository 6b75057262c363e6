"""Deciding: from a snapshot to decisions and verdicts, without clock, I/O or randomness.

A snapshot and a profile enter; decisions, verdicts and their reasons leave. Begin with `engine.cycle`.

    engine/         worlds, sessions, statements and cycles, on which `kai.actions` stand
    configuration/  from a configuration file to a profile: which actions, which plugins, which options
    explain/        verdicts and decisions as sentences
"""
