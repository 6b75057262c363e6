"""What a cycle is told of the time before it: no object says it, and decisions follow from it as from objects."""

from collections.abc import Mapping

import attrs

from kai.model.noroom import NoRoom
from kai.model.queue import Shares


@attrs.frozen(kw_only=True)
class Past:
    """What became of decisions before, and what queues used."""

    usage: Mapping[str, Shares] = attrs.field(factory=dict)
    """The past usage of queues, by name."""
    awaited: tuple[str, ...] = ()
    """Keys of groups for which pods were evicted in cycles before, and that wait for their places since."""
    refused: tuple[NoRoom, ...] = ()
    """Binds that found no room; shapes say the same."""
    evicted: tuple[tuple[str, int], ...] = ()
    """Thousandths of GPUs that pods of each queue lost in the hour before, by the name of the queue."""
    protected: tuple[str, ...] = ()
    """UIDs of pods that budgets protect, or that are being moved; their groups lose no pods."""
