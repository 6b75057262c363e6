"""Finding out how little of a schedule is needed to break an invariant: faults are left out, then replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from tests.simulation.schedule import Plan, run

if TYPE_CHECKING:
    from collections.abc import Callable


def shrunk(plan: Plan, breaks: Callable[[Plan], bool] | None = None, most: int = 40) -> Plan:
    """Return a smaller plan that breaks an invariant too, after so many runs at most.

    Halves of the faults are left out first, then ever smaller parts; what remains is needed, each of it.
    """
    is_bad = breaks or (lambda tried: not run(tried).is_good)
    left = most

    def still(tried: Plan) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and is_bad(tried)

    part = max(1, len(plan.episodes) // 2)
    while part:
        start = 0
        while start < len(plan.episodes):
            tried = attrs.evolve(plan, episodes=plan.episodes[:start] + plan.episodes[start + part :])
            if still(tried):
                plan = tried
            else:
                start += part
        part //= 2
    for change in ({"shuffle": 0.0}, {"replicas": 1}, {"seconds": plan.seconds / 2}):
        tried = attrs.evolve(plan, **change)
        if tried != plan and still(tried):
            plan = tried
    return plan
