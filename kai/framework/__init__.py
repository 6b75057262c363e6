"""The engine: sessions, statements, hooks, cycles; what plugin authors import. Start reading at ``cycle``."""

from kai.framework.cycle import CycleReport, run_cycle
from kai.framework.decisions import Bind, Cause, Decision, DecisionSink, Evict, Nominate, Recorder
from kai.framework.hooks import Dependence, Effect, Hooks, Partition, Plugin
from kai.framework.profile import Action, PluginUse, Profile
from kai.framework.scenario import Outer, Scenario
from kai.framework.session import Session
from kai.framework.verdict import ACCEPTED, Code, Reason, Verdict
from kai.framework.view import SessionView
from kai.model.rows import Bools, Float64s, GroupRow, GroupRows, Int64s, NodeRow, NodeRows, PodRow, PodRows, Scores

__all__ = [
    "ACCEPTED",
    "Action",
    "Bind",
    "Bools",
    "Cause",
    "Code",
    "CycleReport",
    "Decision",
    "DecisionSink",
    "Dependence",
    "Effect",
    "Evict",
    "Float64s",
    "GroupRow",
    "GroupRows",
    "Hooks",
    "Int64s",
    "NodeRow",
    "NodeRows",
    "Nominate",
    "Outer",
    "Partition",
    "Plugin",
    "PluginUse",
    "PodRow",
    "PodRows",
    "Profile",
    "Reason",
    "Recorder",
    "Scenario",
    "Scores",
    "Session",
    "SessionView",
    "Verdict",
    "run_cycle",
]
