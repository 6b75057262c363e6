"""Requests of services: carried out, sent in turn, repeated where that is safe. Begin with `write`.

`sending` passes calls through the `window`. `listing` and `reviews` ask once, for programs that look and leave.
"""
