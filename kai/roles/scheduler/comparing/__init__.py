"""Compares decisions with those of another scheduler. `shadow` is the state machine; `shadowing` is its shell."""
