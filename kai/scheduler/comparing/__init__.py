"""Decisions beside those of another scheduler. Begin with `shadow`, the machine; `shadowing` is the shell around it."""
