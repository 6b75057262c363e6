"""Expectations of scenarios in the short form: ``2 running, 1 pending``, ``{pending: OverLimit}``."""

import re
from collections.abc import Mapping
from typing import Any

from kai.answers.cases.case import Expected
from kai.basics.errors import InputError
from kai.basics.parsing import is_number
from kai.basics.wording import shown
from kai.lab.scenarios.validation import mapping

STATES = ("allocated", "pipelined", "running", "pending", "evicted", "moved", "terminating", "gated", "finished")
_CLAUSE = re.compile(r"(?:(?P<count>[0-9]{1,9})\s+)?(?P<state>[a-z]+)(?:\s+on\s+(?P<nodes>.+))?")


def read_expected(document: Mapping[str, Any], place: str) -> Expected | None:
    """Return the expectations of ``document``, None without any.

    Raises: InputError for a sentence that cannot be read.
    """
    groups = mapping(document.get("expect"), f"{place}: expect")
    for name, want in groups.items():
        for clause in sentence_of(want, f"{place}: expect.{name}").split(","):
            parsed_clause(clause, f"{place}: expect.{name}")
    idle = _gpus(document, "idle", place)
    shares = _gpus(document, "shares", place)
    return Expected(groups=groups, idle=idle, shares=shares) if groups or idle or shares else None


def sentence_of(want: object, place: str) -> str:
    """Return the expectation for the pods of a group, without the reason.

    Raises: InputError.
    """
    if isinstance(want, str):
        return want
    if isinstance(want, Mapping) and len(want) == 1:
        return str(next(iter(want)))
    raise InputError(f'{place}: found {shown(want)}, expected "allocated on n1" or {{pending: a reason}}')


def parsed_clause(clause: str, place: str) -> tuple[int | None, str, tuple[str, ...]]:
    """Return the expected number of pods, None for all, their state and their nodes.

    Raises: InputError.
    """
    match = _CLAUSE.fullmatch(clause.strip())
    if match is None or match["state"] not in STATES:
        raise InputError(
            f"{place}: found {shown(clause.strip())}, expected a number, one of {', '.join(STATES)}, and nodes"
        )
    count = None if match["count"] is None else int(match["count"])
    return count, match["state"], tuple((match["nodes"] or "").replace(" and ", " ").split())


def _gpus(document: Mapping[str, Any], key: str, place: str) -> Mapping[str, float]:
    """Return the expected number of GPUs for each name below ``key``."""
    found = mapping(document.get(key), f"{place}: {key}")
    for name, number in found.items():
        if not is_number(number):
            raise InputError(f"{place}: {key}.{name}: found {shown(number)}, expected a number of GPUs")
    return found
