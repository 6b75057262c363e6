"""Bind requests as the API server has them, and what it says of one while it does not serve the kind.

A definition that is replaced, or an API server that has just begun, answers for a while as if there were no bind
requests at all. That says nothing about a single one: taken for gone, it would never be carried out.
"""

from __future__ import annotations

from typing import cast

from kai.api.bindrequest import BindRequest
from kai.api.plans import Get, Plan, Reason, Ref, Refusal, RefusedError, find
from kai.cluster.requests import NoSuchKind


def order_for_sure(ref: Ref[BindRequest], *, fresh: bool = False) -> Plan[BindRequest | None]:
    """Return a bind request, or None if the API server says that it does not exist; ``fresh``: only the server tells.

    Raises: RefusedError for any other reason, which interrupts while bind requests are not served.
    """
    if not fresh and (known := (yield from find(ref))) is not None:
        return known
    request = Get(ref=ref, fresh=True)
    reply = yield request
    if isinstance(reply, NoSuchKind):
        raise RefusedError(Refusal(reason=Reason.UNAVAILABLE, message=reply.message), request)
    if isinstance(reply, Refusal):
        if reply.reason is Reason.NOT_FOUND:
            return None
        raise RefusedError(reply, request)
    return cast("BindRequest", reply)
