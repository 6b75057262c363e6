"""The dashboard of a demonstration: the same pages as those of the service, for this machine only.

It is served by a thread of its own; the run hands over each cycle and goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
from anyio.from_thread import BlockingPortal, start_blocking_portal

from kai.cli.running.dashboards import Board, Place
from kai.cluster.clock import SystemClock
from kai.dashboard.access import LocalAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.feed import EndedCycle, Feed
from kai.dashboard.pages import make_pages
from kai.dashboard.server import Dashboard
from kai.errors import CommandLineError, ConfigError
from kai.framework.decisions import Bind
from kai.notation import shown
from kai.simulation.deciding.run import Outcome
from kai.telemetry.listener import is_local, read_address


@attrs.frozen
class Served:
    """A dashboard that is served."""

    url: str
    feed: Feed
    portal: BlockingPortal

    def show(self, outcome: Outcome) -> None:
        """Show a cycle."""
        cycle = EndedCycle(outcome=outcome, took=0.0, groups=_groups(outcome))
        self.portal.start_task_soon(self.feed.show, cycle)


@contextmanager
def served(text: str) -> Iterator[Served]:
    """Serve a dashboard at an address of this machine.

    Raises: CommandLineError for an address that others can reach, ConfigError for one that is taken.
    """
    address = read_address(text, "--dashboard")
    if address is None or not (address.host == "localhost" or is_local(address.host)):
        raise CommandLineError(
            f"--dashboard: found {shown(text)}, expected an address of this machine such as 127.0.0.1:8085"
        )
    with start_blocking_portal() as portal:
        feed = Feed()
        board = Board(Place(address=address, asks_for_tokens=False, certificate=None), feed, _dashboard(feed))
        try:
            serving, port = portal.start_task(board.run)
        except ExceptionGroup as group:
            known, _ = group.split(ConfigError)
            raise (group if known is None else known.exceptions[0]) from None
        try:
            yield Served(url=f"http://{address.host}:{port}/", feed=feed, portal=portal)
        finally:
            serving.cancel()


def _dashboard(feed: Feed) -> Dashboard:
    clock = SystemClock()
    answers, access = AnswerCache(feed, clock), LocalAccess()
    return Dashboard(answers=answers, access=access, pages=make_pages(answers, access, clock, _facts))


def _facts() -> Sequence[tuple[str, str, bool]]:
    return [("demonstration", "no cluster, virtual time", True)]


def _groups(outcome: Outcome) -> dict[str, tuple[int, int]]:
    """Return by action for how many groups pods were bound, and for how many anything was decided."""
    snapshot = outcome.last.snapshot
    bound: Counter[str] = Counter()
    acted: Counter[str] = Counter()
    for group, kind in {(int(snapshot.pod_group[each.pod]), type(each)) for each in outcome.last.decisions}:
        if group >= 0:
            acted["all"] += 1
            bound["all"] += kind is Bind
    return {name: (bound[name], acted[name]) for name in acted}
