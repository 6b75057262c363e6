"""``kai plugins``: what is installed, how long it takes, and the package of a new plugin."""
