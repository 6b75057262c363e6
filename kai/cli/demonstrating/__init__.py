"""`kai demo`: a cluster in this process that can be watched, at many times the speed of the clock."""
