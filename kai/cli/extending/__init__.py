"""``kai plugins``: the installed plugins, how long they take, and a template for a new one."""
