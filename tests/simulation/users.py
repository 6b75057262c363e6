"""What a schedule begins with, and what users and administrators do while it lasts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.doubles.rest_server.kinds import BY_KIND, Served
from tests.simulation.actors import (
    SECONDS,
    Actor,
    GangOperator,
    GarbageCollector,
    JobController,
    Kubelets,
    NodeController,
)
from tests.simulation.replica import NAMESPACE
from tests.simulation.world import GPU, GROUP, HOME, JOB, NODE, POD, QUEUE, RESERVED, RIVAL, World, is_leaving, is_over

if TYPE_CHECKING:
    from tests.doubles.rest_server.storage import Change, Manifest

_NAMESPACE: Final = BY_KIND["v1", "Namespace"]
_PRIORITY: Final = BY_KIND["scheduling.k8s.io/v1", "PriorityClass"]
_PRIORITIES: Final = {"train": 50, "build": 100, "inference": 125}
_DEEDS: Final = 22.5
"""So many things users do in a schedule, however long it is."""
CANARY: Final = "canary-6f1d"
"""What users hide in the environment of their pods."""
MIN_MEMBER: Final = "kai.scheduler/batch-min-member"


@attrs.define(eq=False)
class Life:
    """The actors of a world, and its users."""

    world: World
    kubelets: Kubelets = attrs.field(init=False)
    operator: GangOperator = attrs.field(init=False)
    controller: JobController = attrs.field(init=False)
    jobs: int = 0
    changed_at: dict[str, float] = attrs.field(factory=dict)
    """When an administrator changed a node or a queue last."""

    def __attrs_post_init__(self) -> None:
        self._begin()
        self.kubelets = Kubelets(self.world)
        self.operator = GangOperator(self.world)
        NodeController(self.world)
        GarbageCollector(self.world)
        self.controller = JobController(self.world)

    # --- The beginning ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        world, draw = self.world, self.world.shape
        for name in (NAMESPACE, HOME, RIVAL, RESERVED, "kai-scale-adjust", "strangers", "oddities"):
            world.create("admin", _NAMESPACE, {"metadata": {"name": name}})
        for name, value in _PRIORITIES.items():
            world.create("admin", _PRIORITY, {"metadata": {"name": name}, "value": value})
        for number in range(draw.randint(2, 5)):
            self.add_node(f"node-{number}")
        self._make(QUEUE, "top", quota=-1, limit=-1)
        for department in ("a", "b"):
            limit = draw.choice((-1, -1, 6, 10))
            self._make(QUEUE, department, parent="top", quota=draw.randint(2, 8), limit=limit)
            for team in ("1", "2"):
                limit = draw.choice((-1, -1, 3, 5))
                quota = draw.randint(0, 3 if limit < 0 else limit)
                self._make(QUEUE, f"{department}{team}", parent=department, quota=quota, limit=limit)

    def add_node(self, name: str) -> None:
        """Add a node, or one of the same name as before."""
        gpus, cpus = self.world.shape.choice((1, 2, 4, 8)), 16
        size = {"cpu": str(cpus), "memory": "256Gi", "pods": "60", GPU: str(gpus)}
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.count": str(gpus)}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": size, "capacity": size, "conditions": ready}
        self.world.create("admin", NODE, {"metadata": {"name": name, "labels": labels}, "status": status})

    def _make(self, served: Served, name: str, *, parent: str = "", quota: int, limit: int) -> None:
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        resources = {"cpu": free, "memory": free, "gpu": {"quota": quota, "limit": limit, "overQuotaWeight": 1}}
        spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
        self.world.create("admin", served, {"metadata": {"name": name}, "spec": spec})

    def look_anew(self, changes: list[Change]) -> None:
        """Let those who work on the cluster see what a backup changed that was put back."""
        owners = (getattr(each, "__self__", None) for each in self.world.server.storage.listeners)
        actors = [each for each in owners if isinstance(each, Actor)]
        for change in changes:
            before, after = change.before, change.after
            is_same = before and after and before["metadata"]["uid"] == after["metadata"]["uid"]
            for actor in actors:
                if before is not None and not is_same:
                    actor.see(attrs.evolve(change, after=None))
                if after is not None:
                    actor.see(attrs.evolve(change, before=None))

    # --- Users -----------------------------------------------------------------------------------------------------

    async def use(self, seconds: float) -> None:
        """Let users work for so long."""
        world = self.world
        for _ in range(world.shape.randint(3, 8)):
            self.submit()
        end = world.time + seconds
        while world.time < end:
            await asyncio.sleep(world.shape.expovariate(_DEEDS / seconds))
            self.act()

    def act(self) -> None:
        """Do one thing."""
        draw = self.world.shape
        deeds = (self.submit, self.submit, self.submit, self.withdraw, self.delete_pod, self.edit_pod)
        draw.choice(deeds)()

    def submit(self) -> None:
        """Submit a workload."""
        world, draw = self.world, self.world.shape
        self.jobs += 1
        form = draw.choice(("job", "job", "gang", "gang", "half", "cpu"))
        name, size = f"{form}{self.jobs}", draw.choice((1, 1, 2, 3, 4))
        queue, priority = draw.choice(("a1", "a2", "b1", "b2")), draw.choice(("train", "train", "train", "build"))
        gpus = 0 if form in {"half", "cpu"} else draw.choice((1, 1, 1, 2))
        seconds = str(draw.randint(10, 90)) if draw.random() < 0.6 else ""
        annotations = {SECONDS: seconds} if seconds else {}
        if form == "half":
            annotations["gpu-fraction"] = draw.choice(("0.25", "0.5", "0.5", "0.75"))
        template = self.template(queue, priority, gpus, annotations)
        if draw.random() < 0.2:
            nodes = world.all(NODE)
            wanted = draw.choice(nodes)["metadata"]["name"] if nodes else "node-0"
            template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": wanted}
        self.world.say(f"user submits {name}: {size} pods, {gpus} GPUs each, queue {queue}, {priority}")
        if form == "gang":
            self.submit_gang(name, size, queue, priority, template)
            return
        least = size if draw.random() < 0.4 else 1
        self.world.create(
            "user",
            JOB,
            {
                "metadata": {
                    "name": name,
                    "namespace": draw.choice((HOME, HOME, RIVAL)),
                    "labels": template["metadata"]["labels"],
                    "annotations": {MIN_MEMBER: str(least)},
                },
                "spec": {"completions": size, "parallelism": size, "template": template},
            },
        )

    def withdraw_all(self) -> None:
        """Delete all workloads."""
        self.world.say("users delete all that they have")
        for job in self.world.all(JOB):
            self.world.delete("user", JOB, job)
        for gang in self.world.all(GROUP, HOME):
            if gang["metadata"]["name"].startswith("gang"):
                self.world.delete("user", GROUP, gang)
                self.operator.drop(gang["metadata"]["name"])

    def submit_last(self) -> None:
        """Submit one pod of a group that is there before it, so that there is nothing to write but its order."""
        self.world.say("user submits a last pod")
        self.submit_gang("last", 1, "a1", "train", self.template("a1", "train", 0, {}))

    def submit_gang(self, name: str, size: int, queue: str, priority: str, template: Manifest) -> None:
        """Submit pods with names, and a group that they are a gang of."""
        group = {"minMember": size, "queue": queue, "priorityClassName": priority}
        self.world.create("user", GROUP, {"metadata": {"name": name, "namespace": HOME}, "spec": group})
        metadata = template["metadata"]
        annotations = {**metadata["annotations"], "pod-group-name": name}
        self.operator.want(
            [
                {
                    "metadata": {**metadata, "annotations": annotations, "name": f"{name}-{number}", "namespace": HOME},
                    "spec": template["spec"],
                }
                for number in range(size)
            ]
        )

    def template(self, queue: str, priority: str, gpus: int, annotations: dict[str, str]) -> Manifest:
        """Return what pods of a workload are made from."""
        resources: dict[str, Any] = {"requests": {"cpu": "1"}}
        if gpus:
            resources["limits"] = {GPU: str(gpus)}
        labels = {"kai.scheduler/queue": queue, "priorityClassName": priority}
        secret = {"name": "TOKEN", "value": CANARY}
        container = {"name": "main", "image": "work", "resources": resources, "env": [secret]}
        spec = {"schedulerName": "kai-scheduler", "containers": [container], "terminationGracePeriodSeconds": 5}
        return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}

    def withdraw(self) -> None:
        """Delete a workload."""
        draw, world = self.world.shape, self.world
        gangs = [each for each in world.all(GROUP, HOME) if each["metadata"]["name"].startswith("gang")]
        found = [(JOB, each) for each in world.all(JOB)] + [(GROUP, each) for each in gangs]
        if not found:
            return
        served, chosen = draw.choice(found)
        name = chosen["metadata"]["name"]
        world.say(f"user deletes {name}")
        world.delete("user", served, chosen)
        if served is GROUP:
            self.operator.drop(name)

    def delete_pod(self) -> None:
        """Delete one pod."""
        pods = [each for each in self.world.workers() if not is_leaving(each)]
        if pods:
            pod = self.world.shape.choice(pods)
            self.world.say(f"user deletes pod {pod['metadata']['name']}")
            self.world.delete("user", POD, pod)

    def edit_pod(self) -> None:
        """Change an annotation of a pod, so that its version counts up."""
        pods = [each for each in self.world.workers() if not is_over(each)]
        if pods:
            pod = self.world.shape.choice(pods)
            note = {"metadata": {"annotations": {"user/note": str(self.world.shape.randint(0, 99))}}}
            self.world.patch("user", POD, pod, note)
