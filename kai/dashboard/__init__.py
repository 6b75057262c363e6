"""The dashboard and its JSON twin: what the scheduler saw and decided in its last cycle, for those who may see it."""
