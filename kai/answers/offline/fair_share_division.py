"""Fair-share cases: sibling queues and an amount to divide, without a cluster.

Source: the cases of the peer's resource division.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kai.answers.cases.case import FairShareCase
from kai.api import values
from kai.api.values import BadValue
from kai.basics.errors import InputError
from kai.facts.model.axis import Float64s
from kai.framework.division import divide, give_surplus

DIVISIONS = ("all", "resource", "overquota")


def divide_case(case: FairShareCase) -> dict[str, Any]:
    """Return the fair share of every queue, and the undivided remainder of every resource.

    Raises: InputError for a case that cannot be read.
    """
    document = case.document
    try:
        queues = document["queues"]
        totals = document["totalResources"]
        k = max(0.0, float(document.get("kValue", 0.0)))
        if document["divide"] not in DIVISIONS:
            raise InputError.about(
                case.name, "divide", found=document["divide"], wanted=f"one of {', '.join(DIVISIONS)}"
            )
        shares: dict[str, dict[str, float]] = {queue["uid"]: dict.fromkeys(queue["resources"], 0.0) for queue in queues}
        remaining: dict[str, float] = {}
        for resource, total in totals.items():
            members = [queue for queue in queues if resource in queue["resources"]]
            left, found = _divide(members, resource, float(total), k, surplus_only=document["divide"] == "overquota")
            remaining[resource] = left
            for queue, share in zip(members, found, strict=True):
                shares[queue["uid"]][resource] = float(share)
    except KeyError as error:
        raise InputError(f"{case.name}: found a fair-share case without {error}, expected queues and totals") from error
    except (TypeError, AttributeError, ValueError, OverflowError, BadValue) as error:
        raise InputError(
            f"{case.name}: found what no fair-share case has ({error}), expected queues and totals"
        ) from error
    return {"scenario": case.name, "fairShare": shares, "remaining": remaining}


def _divide(
    queues: Sequence[Mapping[str, Any]], resource: str, total: float, k: float, *, surplus_only: bool
) -> tuple[float, Float64s]:
    def column(key: str, default: float = 0.0) -> Float64s:
        return np.array([float(queue["resources"][resource].get(key, default)) for queue in queues], np.float64)

    created = [_instant(queue.get("creationTimestamp")) for queue in queues]
    ranked = sorted(range(len(queues)), key=lambda at: (created[at], str(queues[at]["uid"])))
    order = np.array(ranked, np.int64)
    priority = np.array([int(queue.get("priority", 0)) for queue in queues], np.int64)
    weight, usage, request = column("overQuotaWeight"), column("usage"), column("request")
    limit, shares = column("limit", -1.0), column("fairShare")
    if surplus_only:
        left = give_surplus(total, order, priority, weight, usage, request, limit, k, shares)
    else:
        left = divide(total, order, priority, column("deserved"), limit, weight, usage, request, k, shares)
    return float(left), shares


def _instant(text: object) -> float:
    return values.instant(text) if isinstance(text, str) and text else 0.0
