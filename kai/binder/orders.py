"""Bind requests as the API server has them, and what it says of one while it does not serve the kind.

A definition that is replaced, or an API server that has just begun, answers for a while as if there were no bind
requests at all. That says nothing about a single one: taken for gone, it would never be carried out.
"""

from __future__ import annotations

from kai.api.plans import Get, Plan, Reason, Ref, Refusal, RefusedError, find, get
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.requests import NoSuchKind


def order_for_sure(ref: Ref[BindRequest], *, fresh: bool = False) -> Plan[BindRequest | None]:
    """Return a bind request, or None if the API server says that it does not exist; ``fresh``: only the server tells.

    Raises: RefusedError for any other reason, which interrupts while bind requests are not served.
    """
    if not fresh and (known := (yield from find(ref))) is not None:
        return known
    try:
        return (yield from get(ref, fresh=True))
    except RefusedError as error:
        if is_gone(error):
            return None
        if isinstance(error.refusal, NoSuchKind):
            unserved = Refusal(reason=Reason.UNAVAILABLE, message=error.refusal.message)
            raise RefusedError(unserved, Get(ref=ref, fresh=True)) from None
        raise


def is_gone(error: RefusedError) -> bool:
    """Return whether a refusal says of one order that it does not exist, and not of all of them."""
    return error.reason is Reason.NOT_FOUND and not isinstance(error.refusal, NoSuchKind)
