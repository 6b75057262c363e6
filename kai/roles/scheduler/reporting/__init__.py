"""Reports for operators. Read `cycle_recorder` first; `shadow` compares decisions with those of another scheduler.

Metrics and log lines are made of signals (`kai.roles.scheduler.effects`).
"""
