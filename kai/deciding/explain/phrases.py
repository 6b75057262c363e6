"""Phrases of messages: amounts with their units, names in a row, nodes with their number."""

from collections.abc import Sequence

from kai.basics.wording import number_text
from kai.facts.model import units
from kai.facts.model.units import GPU_UNIT


def quantity(amount: int, resource: str) -> str:
    """Return an amount in axis units with its unit: ``8 GPUs``, ``4 cores``, ``16 GB``."""
    match resource:
        case "gpu":
            return f"{plain(amount)} GPU" if amount == GPU_UNIT else f"{plain(amount)} GPUs"
        case units.PLUGGED_GPU:
            return f"{quantity(amount, 'gpu')} of a device plugin"
        case "cpu":
            return "1 core" if amount == 1000 else f"{number_text(amount / 1000)} cores"
        case "memory":
            return f"{number_text(amount / 1e9, 4)} GB"
        case "pods":
            return "1 pod" if amount == 1 else f"{amount} pods"
        # Whole instances: they are counted and never divided.
        case _ if "/mig-" in resource:
            return f"{number_text(amount)} {resource}"
        case _ if units.is_bytes(resource):
            return f"{number_text(amount / 1e9, 4)} GB of {resource}"
        case _:
            return f"{number_text(amount / 1000)} {resource}"


def plain(amount: float) -> str:
    """Return thousandths of GPUs as GPUs, with no more decimals than needed."""
    return f"{amount / GPU_UNIT:.3f}".rstrip("0").rstrip(".")


def bare(amount: float, resource: str) -> str:
    """Return an amount in axis units, GPUs without their unit."""
    return plain(amount) if resource == "gpu" else quantity(round(amount), resource)


def of_devices(count: int) -> str:
    """Return the phrase for parts of ``count`` devices."""
    return "a GPU" if count == 1 else f"each of {count} GPUs"


def listed(names: Sequence[str], most: int = 6) -> str:
    """Return names as a list, truncated if there are many."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"


def alternatives(names: Sequence[str], most: int = 6) -> str:
    """Return names as alternatives."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} or one of {len(names) - most + 1} more"
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


_OF_MANY = {"is": "are", "has": "have", "does": "do"}
"""Verbs for one node and for several: the peer's texts are about one, or open."""


def counted(count: int, text: str) -> str:
    """Return ``text`` with the number of nodes to which it applies."""
    said = objection(text)
    if count == 1:
        return f"1 node {said}"
    # The peer's texts are kept to the letter, so only their first word is put into the plural.
    verb, space, rest = said.partition(" ")
    return f"{count} nodes {_OF_MANY.get(verb, verb)}{space}{rest}"


def objection(text: str) -> str:
    """Return an objection without its subject: ``had untolerated taint`` of ``node(s) had ...``."""
    return text.removeprefix("node(s) ").removeprefix("node ")


def number(value: object) -> float:
    """Return a fact as a number; 0 if it is none."""
    return float(value) if isinstance(value, int | float) else 0.0
