"""The dashboard and its JSON API: what the scheduler saw and decided in its last cycle, within a reader's rights."""
