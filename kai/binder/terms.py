"""Terms of schedulers, as far as their orders tell: which order came too late.

A leader that was frozen may have an order on its way when another leads already. It was decided on a cluster that has
changed since, so the binder refuses it. An order of an earlier term is not late for that alone: it may have been there
when the next leader looked, which then counts on it. Late is what was created after an order of a later term.
"""

from __future__ import annotations

from typing import Final

import attrs

from kai.api import names
from kai.api.kinds import title
from kai.api.scheduling.bind_request import BindRequest
from kai.numerals import signed

_KEPT: Final = 8
"""Terms of a lease that are remembered."""


@attrs.define
class Terms:
    """When terms began."""

    _began: dict[str, dict[int, float]] = attrs.field(factory=dict)
    """By lease and epoch: when the first order was created that was decided in it."""

    def see(self, request: BindRequest) -> None:
        """Take note of an order."""
        lease, epoch, created = _read(request)
        if epoch is None or created is None:
            return
        began = self._began.setdefault(lease, {})
        began[epoch] = min(created, began.get(epoch, created))
        if len(began) > _KEPT:
            del began[min(began, key=began.__getitem__)]

    def refuse(self, request: BindRequest) -> str:
        """Return why an order must not be carried out; empty if it may."""
        lease, epoch, created = _read(request)
        if epoch is None or created is None:
            return ""
        later = [each for each, began in self._began.get(lease, {}).items() if each > epoch and began < created]
        if not later:
            return ""
        return f"{title(request)} was decided in epoch {epoch} of lease {lease} and came after epoch {min(later)} began"


def _read(request: BindRequest) -> tuple[str, int | None, float | None]:
    """Return of which lease and epoch an order is, and when it was created."""
    annotations = request.metadata.annotations
    epoch = signed(annotations.get(names.EPOCH, ""))
    return annotations.get(names.LEASE, ""), epoch, request.metadata.creation_timestamp
