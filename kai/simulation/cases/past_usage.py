"""Past usage of queues as cases have it: fractions of the cluster, written down instead of asked for."""

import math
from collections.abc import Mapping

import attrs

from kai.configuration.reading import Configuration
from kai.errors import InputError
from kai.model.queue import Shares
from kai.numerals import is_number

_PARTS = tuple(attrs.fields_dict(Shares))


def read_past_usage(value: object, subject: str, field: str) -> Mapping[str, Shares]:
    """Return the past usage of queues by name; ``subject`` and ``field`` name the place in messages.

    Raises: InputError for what is no fraction of a resource.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError.about(subject, field, found=value, wanted=f"{', '.join(_PARTS)} of each queue")
    return {str(queue): _shares(parts, subject, f"{field}.{queue}") for queue, parts in value.items()}


def _shares(parts: object, subject: str, field: str) -> Shares:
    if not isinstance(parts, Mapping) or not set(parts) <= set(_PARTS):
        raise InputError.about(subject, field, found=parts, wanted=f"{', '.join(_PARTS)} as fractions of the cluster")
    for key, part in parts.items():
        if not is_number(part) or not 0 <= part < math.inf:
            raise InputError.about(subject, f"{field}.{key}", found=part, wanted="a fraction of the cluster, 0 or more")
    return Shares(**{key: float(part) for key, part in parts.items()})


def unread(configuration: Configuration, known: Mapping[str, Shares]) -> tuple[str, ...]:
    """Return a note where a configuration asks for past usage and a case does not hold any."""
    if configuration.usage is None or known:
        return ()
    return (f"{configuration.place}: usageDBConfig: a simulation asks no database, and past usage is not in the case",)
