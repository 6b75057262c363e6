"""Carries out the requests of services: in order, concurrently, and again where that is safe. Read `write` first.

`sending` passes calls through the `window`. `listing` and `reviews` make single requests, for short-lived programs.
"""
