"""The kit for authors of plugins, actions or scenarios.

``cluster`` and ``session_view`` build small clusters for unit tests, and ``fair_shares`` says what queues get in one.
``check_plugin`` tests the laws that every plugin must keep, and ``price_plugin`` says what each question to it costs.
``load_scenario`` and ``check_scenario`` run scenario files. The sinks replace a cluster.
"""

from kai.testing.answer_laws import BrokenLaw
from kai.testing.laws import Price, check_plugin, price_plugin
from kai.testing.views import (
    QueueShare,
    RecordingSink,
    RejectingSink,
    check_scenario,
    cluster,
    default_profile_with,
    fair_shares,
    load_scenario,
    node_row,
    only,
    opened,
    pod_row,
    run_scenario,
    session_view,
    snapshot,
)

__all__ = [
    "BrokenLaw",
    "Price",
    "QueueShare",
    "RecordingSink",
    "RejectingSink",
    "check_plugin",
    "check_scenario",
    "cluster",
    "default_profile_with",
    "fair_shares",
    "load_scenario",
    "node_row",
    "only",
    "opened",
    "pod_row",
    "price_plugin",
    "run_scenario",
    "session_view",
    "snapshot",
]
