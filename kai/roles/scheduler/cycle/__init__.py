"""One cycle. Read `cycling` first; `cycle_input` holds its input, and `stream` carries its decisions out.

When a cycle fails, `suspects` finds the object at fault, and `faults` the plugin.
"""
