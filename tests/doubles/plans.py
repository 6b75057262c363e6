"""Carrying out plans against what answers at once: a table, or the double of an API server."""


def carry_out(plan, perform):
    """Return the result of a plan whose requests are performed at once."""
    reply = None
    while True:
        try:
            request = plan.send(reply)
        except StopIteration as stop:
            return stop.value
        reply = perform(request)
