"""All voices with which kai says why a job waits, asked about one job at one moment of its life.

A *voice* is a place where a user reads a reason: ``kai why``, ``kai jobs``, both of them without rights for the
cluster, the conditions of pod and group, events, the metric, the service, and ``kai doctor``. `Life` plays a pod's life
on an API server in memory: what a cycle says is published there, and what was said before stands until it is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import attrs
from prometheus_client import CollectorRegistry

from kai.answers.cases.case import Case
from kai.answers.cases.live_cluster import as_known
from kai.answers.offline.run import Outcome, simulate
from kai.answers.outcomes.job_lines import job_lines
from kai.answers.outcomes.overview import overview
from kai.answers.why.own_jobs import _Reader
from kai.api.cluster_objects import ClusterObjects
from kai.api.codec.structuring import unstructure
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.errors import UnreachableError
from kai.cli.explaining.whyjobs import Asked, JobAnswer
from kai.cluster.process.connections import Request
from kai.cluster.process.exposition import exposition
from kai.dashboard.access import LocalAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.feed import EndedCycle, Feed
from kai.dashboard.pages import make_pages
from kai.dashboard.server import Dashboard
from kai.doctor.checks import CHECKS
from kai.doctor.seen import Seen, Severity, run_check
from kai.framework.hooks import PluginUse
from kai.intake import Intake, IntakeSettings, declared_queues
from kai.roles.scheduler.effects import Send
from kai.roles.scheduler.publishing.explanations import Overall, explain
from kai.roles.scheduler.publishing.publisher import CycleOver, Publisher, Written
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from kai.roles.scheduler.settings import SchedulerSettings
from tests.doubles.cluster import VirtualClock
from tests.unit.roles.scheduler.world import World

GROUP, NAMESPACE = "g", "default"
"""The job that is asked about."""
_LISTS = {"nodes": "nodes", "pods": "pods", "queues": "queues", "podgroups": "pod_groups", "namespaces": "namespaces"}


@attrs.frozen(kw_only=True)
class Said:
    """What each voice says of the job; "" where it says nothing."""

    why: str
    """The code of `kai why`, and its text."""
    why_text: str
    jobs: str
    own: str
    """The code for a user who may read the namespace only: that of the group's condition."""
    service: str
    group: tuple[str, ...]
    """The reasons of the group's condition."""
    group_text: str
    pods: frozenset[tuple[str, str]]
    """The conditions `PodScheduled` of pods that wait: reason and message."""
    events: frozenset[tuple[str, str]]
    """Kind and reason of events that were sent at this moment."""
    metric: Mapping[str, int]
    doctor: frozenset[str]
    """The codes of checks that have a finding."""
    state: str
    """The state of the job in `kai jobs`."""


@attrs.define
class Life:
    """The cluster of a job, from moment to moment."""

    case: Case
    more: tuple[PluginUse, ...] = ()
    world: World = attrs.field(init=False)
    publisher: Publisher = attrs.field(init=False)
    time: float = 0.0

    def __attrs_post_init__(self) -> None:
        """Begin with what the case has."""
        objects = self.case.objects
        self.world = World(*(unstructure(each) for each in (*objects.pod_groups, *objects.pods, *objects.queues)))
        self.publisher = Publisher(SchedulerSettings(), self.world, lambda: self.case.now + self.time)

    def said(self, *, is_linked: bool = True, shown: ClusterObjects | None = None) -> Said:
        """Let a cycle decide, publish what it says, and ask each voice.

        ``is_linked``: whether the link of a pod to its group is written; the scheduler knows it all the same.
        ``shown``: what the scheduler is shown beside what is written, such as pods at rest.
        """
        case = attrs.evolve(self.case, objects=self._written(self.case.objects if shown is None else shown, shown))
        outcome = simulate(case, more=self.more)
        told = self._publish(outcome, case)
        written = self._written(self.case.objects, None)
        if not is_linked:
            written = _unlinked(written)
        reader = attrs.evolve(case, objects=as_known(written))
        seen = simulate(reader, more=self.more)
        view = overview(seen)
        lines = [line for line in job_lines(seen, view) if line.job.key == f"{NAMESPACE}/{GROUP}"]
        answer = JobAnswer.of(seen, view, lines, Asked(name=GROUP, verify=False)).fields()
        reason = answer.get("reason") or {"code": "", "detail": ""}
        group = self.world.get(PodGroup, GROUP, NAMESPACE)
        conditions = group.status.scheduling_conditions
        return Said(
            why=reason["code"],
            why_text=answer.get("summary", ""),
            jobs=lines[0].job.reason[0] if lines else "",
            own=_own(reader.objects, case.now),
            service=_service(outcome),
            group=tuple(each.reason for each in conditions[-1].reasons) if conditions else (),
            group_text=conditions[-1].message if conditions else "",
            pods=self._pods(),
            events=told,
            metric=_metric(outcome, self._overall(outcome, case)),
            doctor=_doctor(reader.objects, case.now),
            state=str(lines[0].job.state) if lines else "",
        )

    def _written(self, objects: ClusterObjects, shown: ClusterObjects | None) -> ClusterObjects:
        """Return objects with the status of pods and groups as it is on the server; pods of ``shown`` as they are."""
        groups = tuple(self.world.all(PodGroup))
        if shown is not None:
            return attrs.evolve(objects, pod_groups=groups)
        return attrs.evolve(objects, pods=tuple(self.world.all(Pod)), pod_groups=groups)

    def _overall(self, outcome: Outcome, case: Case) -> Overall:
        cycle, queues = outcome.last, case.objects.queues
        return explain(cycle.snapshot, cycle.report, "default", declared=lambda: declared_queues(queues, case.settings))

    def tell(self, event: CycleOver) -> None:
        """Write what a cycle says that is over."""
        self.time += 60.0
        for effect in self.publisher.step(event, self.time):
            if isinstance(effect, Send):
                reply = self.world.perform(effect.request)
                if effect.topic:
                    self.publisher.step(Written(effect.topic, effect.request, reply), self.time)
        self.world.sync()

    def changed(self, objects: ClusterObjects) -> None:
        """Let the pods of the cluster be these, with what is written on them already."""
        written = {pod.metadata.uid: pod.status.conditions for pod in self.world.all(Pod)}
        wanted = {(each.metadata.namespace, each.metadata.name) for each in objects.pods}
        for pod in self.world.all(Pod):
            if (pod.metadata.namespace, pod.metadata.name) not in wanted:
                self.world.server.remove("Pod", pod.metadata.name, pod.metadata.namespace)
        for pod in objects.pods:
            status = attrs.evolve(pod.status, conditions=written.get(pod.metadata.uid, pod.status.conditions))
            self.world.server._put(unstructure(attrs.evolve(pod, status=status)))
        self.world.sync()
        self.case = attrs.evolve(self.case, objects=objects)

    def _publish(self, outcome: Outcome, case: Case) -> frozenset[tuple[str, str]]:
        """Write what the cycle says; return the events."""
        before = len(self.world.server.events)
        self.tell(CycleOver(self._overall(outcome, case)))
        return frozenset(
            (event.ref.cls.__name__, event.reason)
            for event in self.world.server.events[before:]
            if event.ref.name == GROUP or event.ref.name.startswith(f"{GROUP}-")
        )

    def _pods(self) -> frozenset[tuple[str, str]]:
        return frozenset(
            (condition.reason, condition.message)
            for pod in self.world.all(Pod)
            if pod.metadata.name.startswith(f"{GROUP}-") and not pod.spec.node_name
            for condition in pod.status.conditions
            if condition.type == "PodScheduled" and condition.status == "False"
        )


def _unlinked(objects: ClusterObjects) -> ClusterObjects:
    """Return the cluster as it is while links are only shown: the group of a pod is told by its owner alone."""
    owners = {}
    pods = []
    for pod in objects.pods:
        annotations = dict(pod.metadata.annotations)
        group = annotations.pop("pod-group-name", "")
        if pod.spec.node_name or not group:
            pods.append(pod)
            continue
        owner = {"apiVersion": "v1", "kind": "Owner", "name": group, "uid": f"owner-of-{group}"}
        owners[group] = owner
        pods.append(
            attrs.evolve(
                pod,
                metadata=attrs.evolve(pod.metadata, annotations=annotations, owner_references=(_reference(owner),)),
            )
        )
    groups = tuple(
        attrs.evolve(
            each, metadata=attrs.evolve(each.metadata, owner_references=(_reference(owners[each.metadata.name]),))
        )
        if each.metadata.name in owners
        else each
        for each in objects.pod_groups
    )
    return attrs.evolve(objects, pods=tuple(pods), pod_groups=groups)


def _reference(owner: Mapping[str, str]) -> Any:
    from kai.api.kubernetes.meta import OwnerReference

    return OwnerReference(kind=owner["kind"], name=owner["name"], uid=owner["uid"])


def _own(objects: ClusterObjects, now: float) -> str:
    """Return the code for a user who may see pods and pod groups of a namespace, and nothing else."""
    mine = ClusterObjects(pods=objects.pods, pod_groups=objects.pod_groups)
    snapshot = Intake(IntakeSettings()).take(mine, now)
    refused = UnreachableError("", missing="list nodes", is_forbidden=True)
    jobs = _Reader(mine, snapshot, refused, sees_pods=True, sees_classes=True).jobs()
    found = next((each.line.job for each in jobs if each.line.job.name == GROUP), None)
    return found.waiting_reason.code if found is not None and found.waiting_reason is not None else ""


def _service(outcome: Outcome) -> str:
    feed = Feed()
    feed.show(EndedCycle(outcome=outcome, took=0.01))
    access, clock = LocalAccess(), VirtualClock()
    answers = AnswerCache(feed, clock)
    pages = make_pages(answers, access, clock, list)
    # Threads are real ones: a machine that compiles kernels first may take as long as it likes.
    board = Dashboard(answers=answers, access=access, pages=pages, patience=600.0)
    path = f"/api/v1/jobs/{NAMESPACE}/{GROUP}"
    request = Request(method="GET", path=path, peer="127.0.0.1", query={}, headers={"Host": "localhost:8085"})
    response = anyio.run(board.respond, request)
    reason = json.loads(response.body).get("reason")
    return reason["code"] if reason else ""


def _metric(outcome: Outcome, overall: Overall) -> Mapping[str, int]:
    """Return what the metric says of pods that wait in this cycle, as Prometheus reads it."""
    metrics = SchedulerMetrics(registry := CollectorRegistry())
    metrics.state(outcome.last.snapshot, outcome.last.report, overall.waiting)
    found = {}
    for line in exposition(registry).decode().splitlines():
        if line.startswith("kai_pending_pods{"):
            labels, _, value = line.rpartition(" ")
            found[labels.split('"')[1]] = int(float(value))
    return found


def _doctor(objects: ClusterObjects, now: float) -> frozenset[str]:
    lists = {name: tuple(unstructure(each) for each in getattr(objects, field)) for name, field in _LISTS.items()}
    seen = Seen(now=now, lists=lists, unread={})
    verdicts = [run_check(each, seen) for each in CHECKS if set(each.needs) <= lists.keys()]
    bad = (Severity.WARN, Severity.FAIL)
    return frozenset(each.check.code for each in verdicts if each.severity in bad)


__all__ = ["GROUP", "NAMESPACE", "Life", "Said"]
