"""Cases in which kai takes other victims than the peer by itself, and the setting with which it takes the peer's."""

from collections.abc import Mapping
from typing import Any, Final

CHOSEN_BETTER: Final = {
    "consolidation/recorded-of-equal-nodes-that-of-a-gangs-last-pod-is-freed-first": "one pod less is moved",
    "integration-reclaim/int-reclaim-003-2-jobs-running-for-queue0-on-3-gpus-1-job-running-for-queue1": (
        "one GPU is asked for: a pod of one GPU goes, not one of two"
    ),
    "integration-reclaim/int-reclaim-023-useonlyfreeresources-off-sanity-q0-allocated-cpu-and-gpu-tas": (
        "CPU is asked for: a pod without a GPU goes, not one with a GPU"
    ),
}
"""What is better; ``docs/differences.md`` has both counts. With ``victims: as-peer`` kai decides as the peer does."""


def as_peer(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case with the peer's choice of victims."""
    config = case.get("config") or {}
    return {**case, "config": {**config, "params": {**(config.get("params") or {}), "victims": "as-peer"}}}
