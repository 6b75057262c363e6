"""One module for each kind of workload, or family of them; each is found by an entry point and no module imports it."""
