"""History: who held what from when to when, in a database of one file. Start reading at `database`."""
