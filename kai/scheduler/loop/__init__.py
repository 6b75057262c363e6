"""When a cycle begins. Begin with `service`; `wakeups` says after which change or pause."""
