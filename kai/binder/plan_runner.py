"""The boundary of a plan: an error of kai's own costs one bind or one sweep, and is named once in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import attrs
import structlog

from kai.api.plans import Plan, RefusedError
from kai.cluster.carrying import KeyRing, carry_out, untold
from kai.cluster.port import Api
from kai.cluster.work import place_of

R = TypeVar("R")
_MOST_NAMED: Final = 1 << 10


@attrs.define(eq=False)
class PlanRunner:
    """Carries out the plans of one binder."""

    api: Api
    _keys: KeyRing = attrs.field(factory=KeyRing)
    _named: dict[tuple[str, str], None] = attrs.field(factory=dict)
    """What errors of kai's own kept from being done, and where they came from: the log has named them."""

    async def run(self, plan: Plan[R], subject: str = "", waits: Callable[[], None] = untold) -> R | str:
        """Return the result of a plan, or in words why it has none; ``waits`` is called when it waits for others."""
        try:
            return await carry_out(plan, self.api, self._keys, waits)
        except RefusedError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - the boundary of one work item: a bug costs one bind, not all
            self._name_bug(error, subject)
            return f"{type(error).__name__}: {error}"

    def _name_bug(self, error: Exception, subject: str) -> None:
        """Write an error of kai's own to the log, once for what it keeps from being done."""
        log, at = structlog.get_logger(), place_of(error)
        key = (subject, at[-1])
        tell = log.debug if key in self._named else log.error
        self._named.pop(key, None)
        self._named[key] = None
        if len(self._named) > _MOST_NAMED:
            del self._named[next(iter(self._named))]
        tell("plan failed", subject=subject, why=str(error), kind=type(error).__name__, at=at)
