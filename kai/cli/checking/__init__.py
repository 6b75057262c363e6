"""``kai lint`` and ``kai doctor``: findings about files and about an installation."""
