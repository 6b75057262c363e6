"""Single values: instants and durations, quantities, and the error of one that is none."""
