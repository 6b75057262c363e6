"""When a cycle begins. Read `service` first; `wakeups` holds the rules for changes and pauses."""
