"""The log's side of attempts: a text and a level for each way in which one ends."""

from __future__ import annotations

import structlog

from kai.api.plans import Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.binder.outcome import Outcome, Verdict
from kai.cluster.port import Connectivity
from kai.cluster.warning import warn


def log_outcome(connectivity: Connectivity, ref: Ref[BindRequest], outcome: Outcome) -> None:
    """Write how an attempt at a bind ended."""
    known = {"bind_request": f"{ref.namespace}/{ref.name}"}
    log = structlog.get_logger().bind(**known)
    if outcome.leftovers:
        warn(connectivity, "could not be undone yet", **known, leftovers=list(outcome.leftovers))
    match outcome.verdict:
        case Verdict.BOUND:
            log.info("bound")
        case Verdict.BUG:
            log.debug(outcome.verdict.value, why=outcome.message)  # it was named where it happened
        case Verdict.NOTHING_TO_DO:
            log.debug("nothing to do", why=outcome.message)
        case Verdict.GONE:
            log.info("nothing to bind any more", why=outcome.message)
        case Verdict.INTERRUPTED:
            warn(
                connectivity,
                outcome.verdict.value,
                **known,
                why=outcome.message,
                again_after=outcome.delay,
            )
        case _:
            log.warning(outcome.verdict.value, why=outcome.message, again_after=outcome.delay)
