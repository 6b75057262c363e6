"""``kai run`` and what its pods run: flags, roles, shards of a configuration, and the process."""
