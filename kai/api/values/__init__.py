"""Single values: instants and durations, quantities, numbers in annotations, and the error of one that is none."""
