"""Claims about caps on evictions: what a cap stops happens once it is raised by what is told."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kai.framework.verdict import Code, Reason
from tests.truth.trial import Trial

Claim = Callable[[Trial], Iterator[str]]


def a_cap_that_is_raised_stops_no_longer(trial: Trial) -> Iterator[str]:
    """``A cap allows M, and it would be F``: with F it is not told of F or of less again."""
    for name, reason in _capped(trial):
        cap, found, most = str(reason.facts["cap"]), _number(reason, "found"), _number(reason, "most")
        if found <= most:
            yield f"{name}: {cap} of {most} is not passed by {found}"
        if most <= 0:
            continue
        after = _with_cap(trial, cap, found)
        again = dict(_capped(after)).get(name)
        if again is not None and again.facts["cap"] == cap and _number(again, "found") <= found:
            yield f"{name}: {cap} {most}, found {found}; raised to that, it waits: {again.facts}"


def _capped(trial: Trial) -> Iterator[tuple[str, Reason]]:
    cycle = trial.outcome.last
    for row, record in cycle.report.records.items():
        for reason in record.reasons:
            if reason.code is Code.EVICTIONS_CAPPED:
                yield cycle.snapshot.groups[row].name, reason


def _number(reason: Reason, key: str) -> float:
    return float(str(reason.facts[key]))


def _with_cap(trial: Trial, cap: str, most: float) -> Trial:
    short: dict[str, Any] = dict(trial.document["short"])
    short["parameters"] = {**short["parameters"], cap: most}
    return Trial({**trial.document, "short": short})


CAPS: Sequence[Claim] = (a_cap_that_is_raised_stops_no_longer,)
