"""Where a cycle fails. Begin with `suspects`, which finds the object; `faults` finds the plugin."""
