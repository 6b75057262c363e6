"""Scenario files: a cluster, a configuration and what is expected, in the long form or in a few lines.

Begin with `scenario`; `shorthand` has the short form, and says how it is written.
"""
