"""The contract: what plugins are asked, what they see, and what they answer with. Plugin authors import this.

The engine that keeps the contract is ``kai.engine``; actions import that.
"""

from kai.framework.decisions import Bind, Cause, Decision, DecisionSink, Evict, Nominate, Recorder
from kai.framework.hooks import (
    Dependence,
    Domains,
    Effect,
    Extension,
    GroupOrder,
    Nest,
    NodeFilter,
    NodeScore,
    NodeWait,
    Partition,
    Placement,
    Plugin,
    PluginUse,
    PodFilter,
    PodOrder,
    VictimProposals,
    Victims,
)
from kai.framework.scenario import Outer, Scenario
from kai.framework.verdict import ACCEPTED, Code, Reason, Verdict
from kai.framework.view import SessionView
from kai.model.rows import Bools, Float64s, GroupRow, GroupRows, Int64s, NodeRow, NodeRows, PodRow, PodRows, Scores

__all__ = [
    "ACCEPTED",
    "Bind",
    "Bools",
    "Cause",
    "Code",
    "Decision",
    "DecisionSink",
    "Dependence",
    "Domains",
    "Effect",
    "Evict",
    "Extension",
    "Float64s",
    "GroupOrder",
    "GroupRow",
    "GroupRows",
    "Int64s",
    "Nest",
    "NodeFilter",
    "NodeRow",
    "NodeRows",
    "NodeScore",
    "NodeWait",
    "Nominate",
    "Outer",
    "Partition",
    "Placement",
    "Plugin",
    "PluginUse",
    "PodFilter",
    "PodOrder",
    "PodRow",
    "PodRows",
    "Reason",
    "Recorder",
    "Scenario",
    "Scores",
    "SessionView",
    "Verdict",
    "VictimProposals",
    "Victims",
]
