"""An API that only reads: every write is refused before it is sent, whichever part of a process asks for it."""

from __future__ import annotations

from typing import Any

import attrs

from kai.cluster.port import Api, Term
from kai.cluster.requests import WRITES, Forbidden, Request


@attrs.frozen
class ReadOnlyApi:
    """Passes on what reads, and refuses what writes."""

    api: Api

    async def perform(self, request: Request) -> Any:  # noqa: ANN401 - as the port says
        """Return the reply to a request that reads; `Forbidden` for one that writes."""
        if isinstance(request, WRITES):
            return Forbidden(message=f"{type(request).__name__}: this process only reads")
        return await self.api.perform(request)

    def fenced(self, term: Term) -> Api:
        """Return this: what refuses every write refuses late ones."""
        del term
        return self
