"""Warnings about what the API server did not do; an outage is told once for all, by what watches the connection."""

from __future__ import annotations

import structlog

from kai.cluster.port import Connectivity


def warn(connectivity: Connectivity, event: str, **facts: object) -> None:
    """Log a warning; where the server is away or may be, log it for those who debug."""
    log = structlog.get_logger()
    (log.debug if connectivity.may_be_away else log.warning)(event, **facts)
