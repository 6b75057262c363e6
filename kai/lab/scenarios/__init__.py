"""Scenario files: a cluster, a configuration and an expectation, in the long form or in a few lines.

Begin with `scenario`; `shorthand` reads the short form and describes its syntax.
"""
