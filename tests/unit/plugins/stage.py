"""Small clusters for tests of plugins: manifests as short calls, a session on them, and whole cycles."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from kai.actions.allocate import Allocate
from kai.api.cluster_objects import collect
from kai.api.codec.structuring import structure_all
from kai.deciding.engine.cycle import Action, Profile
from kai.deciding.engine.host import Silent
from kai.deciding.engine.opened import OpenedPlugin
from kai.deciding.engine.session import Session
from kai.facts.model.axis import PodRow
from kai.facts.model.pod import Status
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Bind, Evict, Recorder
from kai.framework.hooks import Plugin, PluginUse
from kai.framework.parameters import Parameters
from kai.framework.verdict import Histogram
from kai.intake import IntakeSettings, take_snapshot
from kai.plugins.order import Priority
from kai.plugins.proportion import Proportion
from kai.plugins.victims import NodeLocalVictims
from tests.doubles.audit import audit

Manifest = dict[str, Any]
NOW = 1_767_268_800.0
UNLIMITED = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def node(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
    """Return a node with 64 cores; ``gpus`` and other amounts by resource name under ``allocatable``."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"} | spec.pop("allocatable", {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | (labels or {})},
        "spec": spec,
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, on: str = "", **parts: Any) -> Manifest:
    """Return a pod of the group ``name`` up to its last dash; pending, or running ``on`` a node.

    ``parts``: namespace, labels, requests, ports, leaving, metadata and status; the rest goes to the spec.
    """
    namespace = parts.pop("namespace", "default")
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{name}",
        "labels": parts.pop("labels", {}),
        "annotations": {"pod-group-name": name.rpartition("-")[0]},
    } | parts.pop("metadata", {})
    if parts.pop("leaving", False):
        metadata["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    container = {"name": "main", "resources": {"requests": {"cpu": "1"} | parts.pop("requests", {})}}
    container["ports"] = parts.pop("ports", [])
    status = {"phase": "Running" if on else "Pending"} | parts.pop("status", {})
    spec = {"containers": [container], "schedulerName": "kai-scheduler"} | parts
    if on:
        spec["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def groups_of(manifests: Sequence[Manifest], minimum: int = 1) -> list[Manifest]:
    """Return a queue, and a group for every group that pods name; ``a`` is older than ``b``."""
    names = {
        (each["metadata"]["namespace"], each["metadata"]["annotations"]["pod-group-name"])
        for each in manifests
        if each["kind"] == "Pod"
    }
    queues = [
        {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {
                "parentQueue": parent,
                "resources": {"cpu": UNLIMITED, "memory": UNLIMITED, "gpu": UNLIMITED},
            },
        }
        for name, parent in (("top", ""), ("team", "top"))
    ]
    groups = [
        {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"{namespace}-{name}",
                "creationTimestamp": f"2026-01-01T{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}Z",
            },
            "spec": {"queue": "team", "minMember": minimum},
        }
        for at, (namespace, name) in enumerate(sorted(names))
    ]
    return queues + groups


def snapshot_of(
    *manifests: Manifest, minimum: int = 1, settings: IntakeSettings | None = None, **changes: Any
) -> Snapshot:
    """Return the snapshot of nodes, pods and whatever else, with groups for the pods; ``changes`` replace parts."""
    everything = [*manifests, *groups_of(manifests, minimum)]
    snapshot = take_snapshot(collect(structure_all(everything).objects), NOW, settings)
    return attrs.evolve(snapshot, **changes) if changes else snapshot


@attrs.frozen
class Stage:
    """A session with the plugin under test, and what the plugin answers there."""

    session: Session
    answers: OpenedPlugin

    @property
    def is_silent(self) -> bool:
        """Whether the plugin has nothing to say in this session."""
        return attrs.asdict(self.answers, recurse=False) == attrs.asdict(OpenedPlugin(name="tested"), recurse=False)

    @classmethod
    def of(cls, plugin: Plugin, snapshot: Snapshot, parameters: Parameters | None = None) -> "Stage":
        """Open a session in which ``plugin`` is the only one."""
        profile = Profile(
            actions=(), plugins=(PluginUse(name="tested", plugin=plugin),), parameters=parameters or Parameters()
        )
        session = Session(snapshot, profile, Recorder(), Silent())
        return cls(session, session.policy.plugins[0])

    def row(self, name: str) -> PodRow:
        """Return the row of a pod by name."""
        return PodRow(next(row for row, each in enumerate(self.session.snapshot.pods) if each.name == name))

    def is_concerned(self, name: str) -> bool:
        """Say whether the plugin is asked about a pod at all."""
        shape = self.session.facts.pods.shape[self.row(name)]
        return self.answers.is_asked(int(shape))

    def is_single(self, name: str) -> bool:
        """Say whether no node takes a second pod of the shape of a pod."""
        return self.session.policy.is_single(int(self.session.facts.pods.shape[self.row(name)]))

    def accepting(self, name: str) -> list[str]:
        """Return the names of the nodes that the filter leaves for a pod."""
        assert self.answers.node_filter is not None
        mask = self.answers.node_filter.filter(self.row(name), self.session.all_nodes)
        assert mask.dtype == np.bool_
        return [each.name for each, accepted in zip(self.session.snapshot.nodes, mask, strict=True) if accepted]

    def waiting_on(self, name: str) -> list[str]:
        """Return the names of the nodes that the filter leaves for a pod, but on which it must wait."""
        mask = np.zeros(len(self.session.all_nodes), np.bool_)
        shape = int(self.session.facts.pods.shape[self.row(name)])
        # A plugin may let other shapes wait than it filters nodes for: then these are two entries.
        for each in self.session.policy.plugins:
            if each.node_wait is not None and each.is_asked(shape):
                answer = each.node_wait.must_wait(self.row(name), self.session.all_nodes)
                assert answer.dtype == np.bool_
                mask |= answer
        waits = [each.name for each, waits in zip(self.session.snapshot.nodes, mask, strict=True) if waits]
        return [each for each in self.accepting(name) if each in waits]

    def scores(self, name: str) -> list[float]:
        """Return the scores of all nodes for a pod."""
        assert self.answers.node_score is not None
        scores = self.answers.node_score.score(self.row(name), self.session.all_nodes)
        assert scores.dtype == np.float64
        return [float(score) for score in scores]

    def reasons(self, name: str) -> list[str]:
        """Return the words for each node that the filter refuses, in node order."""
        filters = self.answers.node_filter
        assert filters is not None
        assert filters.explain is not None
        refused = self.session.all_nodes[~filters.filter(self.row(name), self.session.all_nodes)]
        return list(filters.explain(self.row(name), refused))

    def refusal(self, name: str) -> str:
        """Return why a pod is refused before any node is looked at, "" if it is not."""
        if self.answers.pod_filter is None or not self.is_concerned(name):
            return ""
        verdict = self.answers.pod_filter.admit(self.row(name))
        return "" if verdict else str(verdict.reasons[0].facts["text"])


@attrs.frozen
class Played:
    """What a cycle decided."""

    session: Session
    bound: dict[str, str]
    evicted: list[str]

    def waiting_for(self, group: str) -> Histogram:
        """Return what nodes objected to the first pod of a group that found none."""
        row = next(row for row, each in enumerate(self.session.snapshot.groups) if each.name == group)
        histogram = self.session.records[row].reasons[0].facts["histogram"]
        assert isinstance(histogram, Histogram)
        return histogram


def play(
    plugin: Plugin,
    snapshot: Snapshot,
    actions: Sequence[Action] = (Allocate(),),
    parameters: Parameters | None = None,
) -> Played:
    """Run a cycle with the plugin under test, fair shares, priorities and a search for victims."""
    plugins = (plugin, Proportion(), Priority(), NodeLocalVictims())
    uses = tuple(PluginUse(name=type(each).__name__, plugin=each) for each in plugins)
    recorder = Recorder()
    profile = Profile(actions=tuple(actions), plugins=uses, parameters=parameters or Parameters())
    session = Session(snapshot, profile, recorder, Silent())
    for action in actions:
        action.run(session)
    bound = {
        snapshot.pods[each.pod].name: snapshot.nodes[each.node].name
        for each in recorder.decisions
        if isinstance(each, Bind)
    }
    evicted = [snapshot.pods[each.pod].name for each in recorder.decisions if isinstance(each, Evict)]
    audit(session.ledger)
    return Played(session, bound, evicted)


def ranked(snapshot: Snapshot, **priorities: int) -> Snapshot:
    """Return the snapshot with other priorities of groups, by name."""
    groups = tuple(attrs.evolve(each, priority=priorities.get(each.name, each.priority)) for each in snapshot.groups)
    return attrs.evolve(snapshot, groups=groups)


def evict(session: Session, name: str) -> None:
    """Evict a pod and keep it evicted."""
    row = next(row for row, each in enumerate(session.snapshot.pods) if each.name == name)
    statement = session.statement("test")
    statement.evict(np.array([row], np.int64))
    assert session.columns.status[row] == Status.RELEASING
