"""What to do when a cycle fails. Read `suspects` first, which finds the object at fault; `faults` finds the plugin."""
