"""What an API server does, as cases that are tried on the model and on a real API server; start at `asking`."""

from tests.doubles.facts import pods, reading, writing
from tests.doubles.facts.asking import FACTS, HOME, Asked, Server

__all__ = ["FACTS", "HOME", "Asked", "Server", "pods", "reading", "writing"]
