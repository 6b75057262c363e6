"""Work for the cluster while things go wrong: bare pods, gangs of four, halves of GPUs, and a queue that takes back.

Everything is drawn from one seed. Pods never have a name that another had before, so that a name in a log means one
pod. What owners would do is done here: pods that were taken away come back under other names, and the group of a job
that is gone goes.
"""

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException

import attrs

from tests.integration.behaviour import Job, Part
from tests.integration.client import Manifest, Refused
from tests.integration.stage import POD_GROUP, Stage

_KINDS = ("lone", "lone", "gang", "gang", "half", "half", "claim")
_GPUS = {"lone": 1.0, "gang": 4.0, "half": 0.5, "claim": 2.0}
_COLLECTED_EVERY = 4
"""In every which turn what nothing owns any more is looked for, for which everything has to be listed."""


@attrs.define
class Running:
    """A job, and how many names its pods have had."""

    job: Job
    kind: str
    named: int
    pods: set[str] = attrs.field(factory=set)


@attrs.define
class Load:
    """Asks for more than a cluster has, so that a queue has to take back what is its own, from a thread of its own."""

    stage: Stage
    random: random.Random
    gpus: int
    most: float = 1.25
    """What share of the cluster all jobs want together at most."""
    kinds: tuple[str, ...] = _KINDS
    """What comes by itself."""
    apart: float = 0.5
    """Seconds from the end of a turn to the next one."""
    is_paused: bool = False
    jobs: dict[str, Running] = attrs.field(factory=dict)
    submitted: int = 0
    problems: list[str] = attrs.field(factory=list)
    _numbers: "itertools.count[int]" = attrs.field(factory=itertools.count)
    _lock: threading.RLock = attrs.field(factory=threading.RLock)
    _stop: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=60)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Let nothing come and go by itself for a moment."""
        with self._lock:
            yield

    @property
    def demand(self) -> float:
        """How many GPUs all jobs want together."""
        return sum(_GPUS[each.kind] for each in self.jobs.values())

    # --- Coming and going ----------------------------------------------------------------------------------------

    def submit(self, kind: str) -> Running:
        """Create a job of a kind."""
        name = f"{kind}-{next(self._numbers)}"
        part = Part(pods=4, gpu=1) if kind == "gang" else Part(gpu=2 if kind == "claim" else 1)
        if kind == "half":
            part = Part(fraction=0.5)
        if kind == "probe":
            part = Part(cpu="10m")
        queue = "owner" if kind == "claim" else "team"
        job = Job(name=name, part=part, queue=queue, bare=kind != "gang")
        with self._lock:
            found = Running(job, kind, job.count, {f"{name}-{number}" for number in range(job.count)})
            for manifest in job.manifests():
                self.stage.create(manifest)
            if kind != "probe":
                self.jobs[name] = found
                self.submitted += found.named
        return found

    def burst(self, count: int) -> None:
        """Create several jobs at once, so that many writes are under way."""
        for _ in range(count):
            self.submit(self.random.choice(_KINDS[:-1]))

    def shrink(self, share: float) -> None:
        """Take jobs away until the rest needs no more than a share of the cluster.

        Both threads do: a job that one chose is not to be taken away by the other.
        """
        with self._lock:
            while self.jobs and self.demand > share * self.gpus:
                self.remove(self.random.choice(sorted(self.jobs)))

    def remove(self, name: str) -> None:
        """Take a job away, with all of its pods."""
        with self._lock:
            for pod in sorted(self.jobs.pop(name).pods):
                self.stage.delete("v1", "Pod", pod)

    def gang_sizes(self, pods: list[Manifest]) -> dict[str, tuple[int, int]]:
        """Return of each gang how many of its ``pods`` are bound, and how many must be."""
        where = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods}
        with self._lock:
            gangs = [each for each in self.jobs.values() if each.kind == "gang"]
            return {
                each.job.name: (sum(bool(where.get(pod)) for pod in each.pods), each.job.part.pods) for each in gangs
            }

    # --- The thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        for turn in itertools.count():
            if self._stop.wait(self.apart):
                return
            try:
                with self._lock:
                    pods = self.stage.api.list("v1", "Pod", self.stage.space)
                    if turn % _COLLECTED_EVERY == 0:
                        self._collect()
                    self._replace(pods)
                    if not self.is_paused:
                        self._turn_over()
            except (Refused, HTTPException, OSError) as error:
                self.problems.append(f"{type(error).__name__}: {error}")

    def _turn_over(self) -> None:
        for _ in range(self.random.randint(0, 3)):
            self.submit(self.random.choice(self.kinds))
        self.shrink(self.most)

    def _replace(self, pods: list[Manifest]) -> None:
        """Create anew what was taken away of the ``pods`` that were there, as the owner of the pods does."""
        there = {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
        for each in self.jobs.values():
            for lost in sorted(each.pods - there):
                each.pods.remove(lost)
                made = each.job.pod(each.named)
                each.named += 1
                self.stage.create(made)
                each.pods.add(made["metadata"]["name"])
                self.submitted += 1

    def _collect(self) -> None:
        """Delete the groups of jobs that are gone; what pods own goes with the pods."""
        for each in self.stage.api.list(POD_GROUP, "PodGroup", self.stage.space):
            name = each["metadata"]["name"]
            if name.startswith("gang-") and name not in self.jobs:
                self.stage.api.delete(each)
