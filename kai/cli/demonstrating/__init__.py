"""`kai demo`: watch a simulated cluster in this process, at many times real speed."""
