"""Behaviours as data: what is put into a cluster, step by step, and what must have become of it after each step.

A file in ``behaviours`` holds one suite: a mapping of sentences to cases. Under the name ``kai`` it may say how
kai runs for all of them (see `Setting`); otherwise all roles run in one process, as shipped. A case may say

    nodes:    {n1: {gpu: 4}}                     by name: amounts, `labels`, `taints`
    queues:   {team: {gpu: {quota: 2}}}          by name: shares, `parent`, `priority`; a queue `team` is there anyway
    objects:  [...]                              other manifests; ``{space}`` is the namespace
    steps:    [...]

and a step

    jobs:     {train: {pods: 3, gpu: 2}}         see `Job`; kai sees those of a step at once
    objects:  [...]
    delete:   [train-0]                          pods that their owner takes away
    change:   [...]                              parts of manifests, merged into objects that are there
    expect:   {train: {running: 3}}              see `Expectation`
    queues:   {team: {allocated: {cpu: "1"}}}    parts of the status of queues

What is expected must come true, and where somebody waits it must still be true after two more cycles.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import yaml

from tests.integration.client import Manifest, until
from tests.integration.processes import frozen
from tests.integration.stage import JOB, POD_GROUP, QUEUE, Stage, an_object, node, queue

FOLDER = Path(__file__).parent / "behaviours"
TEAM = "team"
GPU = "nvidia.com/gpu"
SUBGROUP = "kai.scheduler/subgroup-name"
NUMA_PLACEMENT = "kai.scheduler/numa-placement-predicted"
_AMOUNTS = ("gpu", "cpu", "memory")


@attrs.frozen(kw_only=True)
class Part:
    """The pods of a job, or of one of its sub-groups, that are alike."""

    pods: int = 1
    gpu: Any = None
    cpu: Any = "100m"
    memory: Any = None
    resources: Manifest = attrs.field(factory=dict)
    """Of the container, added to these."""
    container: Manifest = attrs.field(factory=dict)
    """What else the container says."""
    fraction: Any = None
    gpu_memory: Any = None
    devices: Any = None
    labels: dict[str, str] = attrs.field(factory=dict)
    annotations: dict[str, str] = attrs.field(factory=dict)
    spec: Manifest = attrs.field(factory=dict)
    """Of the pod, added to what is said above."""
    node: str = ""
    """Where they run already."""

    def pod(self, name: str) -> Manifest:
        """Return the manifest of one of them."""
        requests = {key: str(getattr(self, key)) for key in _AMOUNTS if getattr(self, key) is not None}
        if "gpu" in requests:
            requests[GPU] = requests.pop("gpu")
        limits = {GPU: requests[GPU]} if GPU in requests else {}
        resources = {"requests": requests, "limits": limits}
        for key, value in self.resources.items():
            resources[key] = {**resources.get(key, {}), **value} if isinstance(value, dict) else value
        shared = {
            "gpu-fraction": self.fraction,
            "gpu-memory": self.gpu_memory,
            "gpu-fraction-num-devices": self.devices,
        }
        annotations = {key: str(value) for key, value in shared.items() if value is not None}
        if annotations:  # what the webhook of the peer adds
            annotations["runai/shared-gpu-configmap"] = f"{name}-shared-gpu"
        container = {"name": "main", "image": "none", "resources": resources, **self.container}
        spec = {"schedulerName": "kai-scheduler", "terminationGracePeriodSeconds": 0, "containers": [container]}
        if self.node:
            spec["nodeName"] = self.node
        metadata = {"labels": dict(self.labels), "annotations": {**annotations, **self.annotations}}
        return an_object("v1", "Pod", name, metadata=metadata, spec={**spec, **self.spec})


@attrs.frozen(kw_only=True)
class Job:
    """A group with pods ``NAME-0``, ``NAME-1``, ...; a gang of all of them, unless ``min`` says otherwise.

    With ``sub_groups`` each of these has pods of its own. A job that is ``bare`` is one pod without a group, which the
    pod grouper makes. Of one that ``comes_back`` the owner replaces the pods that are taken away. In labels
    ``{number}`` is that of the pod. ``group`` is added to the specification of the group.
    """

    name: str
    part: Part
    min: int | None = None
    queue: str = TEAM
    priority: str = ""
    bare: bool = False
    comes_back: bool = False
    group: Manifest = attrs.field(factory=dict)
    sub_groups: dict[str, Manifest] = attrs.field(factory=dict)

    @classmethod
    def read(cls, name: str, text: Manifest) -> "Job":
        """Return a job as a case writes it."""
        own = {each.name for each in attrs.fields(cls)} - {"name", "part"}
        given = {key: value for key, value in text.items() if key in own}
        part = {key: value for key, value in text.items() if key not in own}
        return cls(name=name, part=Part(**part), **given)

    @property
    def count(self) -> int:
        """How many pods it has in the end."""
        return len(list(self._parts()))

    def manifests(self) -> list[Manifest]:
        """Return its group, unless the pod grouper makes it, and its pods."""
        group = [] if self.bare else [self._group()]
        return [*group, *(self.pod(number) for number in range(self.count))]

    def pod(self, number: int) -> Manifest:
        """Return the pod of a number; numbers beyond the last begin anew."""
        parts = list(self._parts())
        sub_group, part = parts[number % len(parts)]
        labels = {key: value.format(number=number) for key, value in part.labels.items()}
        made = attrs.evolve(part, labels=labels).pod(f"{self.name}-{number}")
        metadata = made["metadata"]
        metadata["labels"] |= {JOB: self.name}
        if sub_group:
            metadata["labels"][SUBGROUP] = sub_group
        if self.bare:
            metadata["labels"]["kai.scheduler/queue"] = self.queue
            metadata["labels"] |= {"priorityClassName": self.priority} if self.priority else {}
        else:
            metadata["annotations"]["pod-group-name"] = self.name
        return made

    def _parts(self) -> "list[tuple[str, Part]]":
        leaves = {name: text for name, text in self.sub_groups.items() if name not in self._parents()}
        if not leaves:
            return [("", self.part)] * self.part.pods
        out: list[tuple[str, Part]] = []
        for name, text in leaves.items():
            own = {key: value for key, value in text.items() if key in {each.name for each in attrs.fields(Part)}}
            part = attrs.evolve(self.part, **{"pods": 1, **own})
            out += [(name, part)] * part.pods
        return out

    def _parents(self) -> set[str]:
        return {str(text["parent"]) for text in self.sub_groups.values() if "parent" in text}

    def _group(self) -> Manifest:
        spec: Manifest = {"queue": self.queue}
        if self.sub_groups:
            spec["subGroups"] = [self._sub_group(name, text) for name, text in self.sub_groups.items()]
        else:
            spec["minMember"] = self.part.pods if self.min is None else self.min
        if self.priority:
            spec["priorityClassName"] = self.priority
        return an_object(POD_GROUP, "PodGroup", self.name, spec={**spec, **self.group})

    def _sub_group(self, name: str, text: Manifest) -> Manifest:
        known: Manifest = {key: text[key] for key in ("parent", "minSubGroup", "topologyConstraint") if key in text}
        if name not in self._parents():
            known["minMember"] = text.get("min", text.get("pods", 1))
        return {"name": name, **known}


@attrs.frozen(kw_only=True)
class Expectation:
    """What must have become of a job; what is not said may be anything.

    ``running`` and ``waiting`` count pods, ``nodes`` counts running ones by node and ``among`` by sub-group; ``gpus``
    counts the shared GPUs in use. The rest are parts of texts: of the condition and event of a waiting pod, of the
    event of the group, and of the evicting event, ``told`` of events on its pods by their reason; ``reason`` is that of
    the group's condition, ``pods`` names the running ones, ``zones`` says how many NUMA zones each of these spans,
    ``claims`` how many of them got a resource claim for what they ask for by name.
    """

    running: int | None = None
    waiting: int | None = None
    nodes: dict[str, int] | None = None
    spread: list[int] | None = None
    among: dict[str, int] | None = None
    gpus: int | None = None
    pods: list[str] | None = None
    pod_says: str = ""
    group_says: str = ""
    evicted: str = ""
    not_ready: str = ""
    told: dict[str, str] = attrs.field(factory=dict)
    zones: list[int] | None = None
    claims: int | None = None
    reason: str = ""
    group: Manifest | None = None
    """Part of the specification of the group."""

    def missing(self, stage: Stage, job: Job) -> str:
        """Return what is not as expected; "" if everything is."""
        running, waiting = stage.running(job.name), stage.waiting(job.name)
        nodes = Counter(each["spec"]["nodeName"] for each in running)
        found = {
            "running": len(running),
            "waiting": len(waiting),
            "nodes": dict(nodes),
            "spread": sorted(nodes.values(), reverse=True),
            "among": dict(Counter(each["metadata"]["labels"].get(SUBGROUP, "") for each in running)),
            "gpus": len({each["metadata"]["labels"].get("runai-gpu-group") for each in running}),
            "pods": [each["metadata"]["name"] for each in running],
            "zones": sorted(len(_zones(each)) for each in running),
            "claims": sum("extendedResourceClaimStatus" in each["status"] for each in running),
        }
        for name, value in found.items():
            wanted = getattr(self, name)
            if wanted is not None and wanted != value:
                return f"{job.name}: {name} is {value}, expected {wanted}"
        return self._unsaid(stage, job, waiting)

    def _unsaid(self, stage: Stage, job: Job, waiting: list[Manifest]) -> str:
        if self.waiting and not any(_is_explained(stage, each) for each in waiting):
            return f"{job.name}: nobody says why it waits"
        if self.pod_says and not any(self.pod_says in _condition(each) for each in waiting):
            return f"{job.name}: the pods say {[_condition(each) for each in waiting]}, expected {self.pod_says!r}"
        names = {each["metadata"]["name"] for each in waiting}
        told = [e["message"] for e in stage.events(reason="Unschedulable") if e["involvedObject"]["name"] in names]
        if self.pod_says and not any(self.pod_says in each for each in told):
            return f"{job.name}: events on its pods say {told}, expected {self.pod_says!r}"
        for wanted, reason in (
            (self.group_says, "Unschedulable"),
            (self.evicted, "Evict"),
            (self.not_ready, "NotReady"),
        ):
            if not wanted:
                continue
            name = _group_name(stage, job)
            texts = [each["message"] for each in stage.events(name, reason)] if name else []
            if not any(wanted in each for each in texts):
                return f"{job.name}: events {reason} say {texts}, expected {wanted!r}"
        return self._untold(stage, job) or self._unreasoned(stage, job) or self._unlike(stage, job)

    def _untold(self, stage: Stage, job: Job) -> str:
        for reason, wanted in self.told.items():
            on_pods = [e for e in stage.events(reason=reason) if e["involvedObject"]["kind"] == "Pod"]
            texts = [e["message"] for e in on_pods if e["involvedObject"]["name"].startswith(f"{job.name}-")]
            if not any(wanted in each for each in texts):
                return f"{job.name}: events {reason} on its pods say {texts}, expected {wanted!r}"
        return ""

    def _unlike(self, stage: Stage, job: Job) -> str:
        if self.group is None:
            return ""
        spec = _group(stage, job).get("spec", {})
        found = {key: spec.get(key) for key in self.group}
        return "" if found == self.group else f"{job.name}: its group says {found}, expected {self.group}"

    def _unreasoned(self, stage: Stage, job: Job) -> str:
        if not self.reason:
            return ""
        status = _group(stage, job).get("status", {})
        reasons = [one["reason"] for each in status.get("schedulingConditions", ()) for one in each.get("reasons", ())]
        return "" if self.reason in reasons else f"{job.name}: its reasons are {reasons}, expected {self.reason}"


def _group_name(stage: Stage, job: Job) -> str:
    """Return how the group of a job is called; "" while a bare one has no pod."""
    if not job.bare:
        return job.name
    pods = stage.pods(job.name)
    return f"pg-{pods[0]['metadata']['name']}-{pods[0]['metadata']['uid']}" if pods else ""


def _group(stage: Stage, job: Job) -> Manifest:
    """Return the group of a job; {} if it is not there yet."""
    name = _group_name(stage, job)
    return (stage.find(POD_GROUP, "PodGroup", name) if name else None) or {}


def _zones(pod: Manifest) -> list[Manifest]:
    found: list[Manifest] = json.loads(pod["metadata"].get("annotations", {}).get(NUMA_PLACEMENT, "[]"))
    return found


def _condition(pod: Manifest) -> str:
    conditions = pod["status"].get("conditions", ())
    return next((str(each.get("message")) for each in conditions if each["type"] == "PodScheduled"), "")


def _is_explained(stage: Stage, pod: Manifest) -> bool:
    group = pod["metadata"].get("annotations", {}).get("pod-group-name", "")
    return bool(_condition(pod) or (group and stage.events(group, "NotReady")))


@attrs.define
class Play:
    """One case, being performed."""

    KEYS: ClassVar = frozenset({"jobs", "objects", "delete", "change", "expect", "queues"})
    """What a step may say."""

    stage: Stage
    jobs: dict[str, Job] = attrs.field(factory=dict)
    next_numbers: dict[str, int] = attrs.field(factory=dict)

    def perform(self, case: Manifest) -> None:
        """Perform all steps."""
        case = json.loads(json.dumps(case).replace("{space}", self.stage.space))
        for manifest in (*_nodes(case), *_queues(case), *case.get("objects", ())):
            self.stage.create(manifest)
        for number, step in enumerate(case["steps"], 1):
            unknown = step.keys() - self.KEYS
            assert not unknown, f"step {number} says {sorted(unknown)}, which means nothing"
            self.act(step)
            self.check(step, number)

    def act(self, step: Manifest) -> None:
        """Do what a step says."""
        for manifest in step.get("objects", ()):
            self.stage.create(manifest)
        for manifest in step.get("change", ()):
            self.stage.change(manifest)
        for name in step.get("delete", ()):
            self.stage.delete("v1", "Pod", name)
        with frozen(*self.stage.programs):  # the jobs of a step come together: none is decided on before the others
            for name, text in step.get("jobs", {}).items():
                job = self.jobs[name] = Job.read(name, text or {})
                self.next_numbers[name] = job.count
                for manifest in job.manifests():
                    self.stage.create(manifest)

    def check(self, step: Manifest, number: int) -> None:
        """Wait until everything is as a step expects it."""
        expected = {
            name: Expectation(**(text if isinstance(text, dict) else {"running": text}))
            for name, text in step.get("expect", {}).items()
        }

        def missing() -> list[str]:
            self._replace()
            found = [each.missing(self.stage, self.jobs[name]) for name, each in expected.items()]
            found += [_queue_missing(self.stage, name, text) for name, text in step.get("queues", {}).items()]
            return [each for each in found if each]

        last: list[str] = []

        def is_so() -> bool:
            last[:] = missing()
            return not last

        try:
            until(is_so, f"what is expected after step {number}", every=0.1)
        except TimeoutError as error:
            raise AssertionError(f"{error}: {last}") from None
        if any(each.waiting for each in expected.values()):
            self.stage.settle()
            changed = missing()
            assert not changed, f"after step {number} it did not stay so: {changed}"

    def _replace(self) -> None:
        """Do what owners do: make new pods for those that went."""
        for job in self.jobs.values():
            if job.comes_back:
                for _ in range(job.count - len(self.stage.pods(job.name))):
                    self.stage.create(job.pod(self.next_numbers[job.name]))
                    self.next_numbers[job.name] += 1


def _nodes(case: Manifest) -> list[Manifest]:
    out = []
    for name, text in case.get("nodes", {"n1": {"gpu": 4}}).items():
        given = dict(text or {})
        spec = {"taints": given.pop("taints")} if "taints" in given else {}
        out.append(node(name, spec=spec, **given))
    return out


def _queues(case: Manifest) -> list[Manifest]:
    texts: dict[str, Manifest] = {"top": {}, TEAM: {"parent": "top"}, **case.get("queues", {})}
    return [queue(name, **(text or {})) for name, text in texts.items()]


def _queue_missing(stage: Stage, name: str, wanted: Manifest) -> str:
    status = stage.get(QUEUE, "Queue", name).get("status", {})
    wrong = {
        f"{part}.{key}": status.get(part, {}).get(key)
        for part, amounts in wanted.items()
        for key, value in amounts.items()
        if status.get(part, {}).get(key) != value
    }
    return f"queue {name}: found {wrong}, expected {wanted}" if wrong else ""


@attrs.frozen(kw_only=True)
class Setting:
    """How kai runs for a suite.

    ``programs`` are the processes: of which roles each is (all, unless it says so) and with what flags;
    ``configuration`` is what ``--scheduler-conf`` names.
    """

    name: str
    programs: Sequence[Mapping[str, Sequence[str]]] = ({},)
    configuration: Manifest | None = None

    def start(self, stage: Stage) -> None:
        """Start kai so, and wait until it is ready."""
        flags: tuple[str, ...] = ()
        if self.configuration is not None:
            path = stage.folder / f"{self.name}.yaml"
            path.write_text(yaml.safe_dump(self.configuration))
            flags = (f"--scheduler-conf={path}",)
        for number, each in enumerate(self.programs):
            stage.begin(f"{self.name}-{number}", *each.get("roles", ()), flags=(*flags, *each.get("flags", ())))
        stage.await_ready()


SHIPPED = Setting(name="shipped")


@attrs.frozen
class Suite:
    """The cases of a file, by what they say."""

    name: str
    setting: Setting
    cases: Mapping[str, Manifest]


def suites() -> list[Suite]:
    """Return all suites."""
    return [_suite(path.stem, yaml.safe_load(path.read_text())) for path in sorted(FOLDER.glob("*.yaml"))]


def _suite(name: str, text: Manifest) -> Suite:
    setting = Setting(name=name, **text.pop("kai")) if "kai" in text else SHIPPED
    return Suite(name, setting, text)
