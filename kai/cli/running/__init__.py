"""``kai run``: flags, roles, configurations, and the process that runs them."""
