"""Faults at the very writes of kai: each kind of write, each moment of it, and what goes wrong then.

A *point* is a kind of write. Of each there are three *moments*: before the API server has it, once the server has done
it and the answer is on its way, and once kai has the answer. What goes wrong at a moment is a *fault*: kai is killed,
or stands still for a while, or is answered with an error, or gets no answer. An answer that kai has can neither be lost
nor be an error, so ten trials are left of each point. They meet the occurrences of a point in turn, also where kai
only writes again what failed a moment ago.

Not among the points: orders that are over go with their pods, by the garbage collector.
"""

import enum
import itertools
import os
import re
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable

import attrs

from tests.integration.chaos.rig import Rig
from tests.integration.proxy import Instead, Proxy


@attrs.frozen
class Point:
    """A kind of write."""

    name: str
    method: str
    path: str
    """A regular expression that finds something in the path, without its query."""

    def is_met(self, method: str, path: str) -> bool:
        """Return whether a request is a write of this kind."""
        return method == self.method and re.search(self.path, path.partition("?")[0]) is not None


POINTS = (
    Point("a binding", "POST", r"/pods/[^/]+/binding$"),
    Point("an eviction", "POST", r"/pods/[^/]+/eviction$"),
    Point("an order", "POST", r"/bindrequests$"),
    Point("what became of an order", "PATCH", r"/bindrequests/[^/]+/status$"),
    Point("a reservation", "POST", r"/kai-resource-reservation/pods$"),
    Point("a reservation that is over", "DELETE", r"/kai-resource-reservation/pods/[^/]+$"),
    Point("what containers are told", "POST", r"/configmaps$"),
    Point("a label or a link of a pod", "PATCH", r"/pods/[^/]+$"),
    Point("a condition of a pod", "PATCH", r"/pods/[^/]+/status$"),
    Point("a group", "PATCH", r"/podgroups/[^/]+$"),
    Point("the state of a group", "PATCH", r"/podgroups/[^/]+/status$"),
    Point("the state of a queue", "PATCH", r"/queues/[^/]+/status$"),
    Point("an event", "POST", r"/events$"),
    Point("the lease", "PUT", r"/leases/[^/]+$"),
)


class Moment(enum.Enum):
    """When something goes wrong."""

    BEFORE = "before it is sent"
    SENT = "once it is done"
    ANSWERED = "once it is answered"


class Fault(enum.Enum):
    """What goes wrong."""

    KILL = "kill"
    PAUSE = "pause"
    ERROR = "error"
    LOST = "lost answer"


@attrs.frozen
class Trial:
    """A fault at a moment of a point."""

    point: Point
    moment: Moment
    fault: Fault

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.fault.value} at {self.point.name}, {self.moment.value}"


def trials(faults: Iterable[Fault], points: Iterable[Point] = POINTS) -> tuple[Trial, ...]:
    """Return each of the faults at each moment of each point that can have it."""
    of_an_answer = {Fault.ERROR, Fault.LOST}
    every = itertools.product(points, Moment, faults)
    return tuple(Trial(*each) for each in every if not (each[1] is Moment.ANSWERED and each[2] in of_an_answer))


@attrs.define
class Injector:
    """Stands in the proxy, and lets each occurrence of a point meet the next of its trials."""

    proxy: Proxy
    pid: Callable[[], int]
    pause: float
    """For how many seconds a pause lasts."""
    hit: list[Trial] = attrs.field(factory=list)
    is_dead: bool = False
    """Whether kai was killed, and is to be started again."""
    _waiting: dict[Point, deque[Trial]] = attrs.field(factory=dict)
    _under_way: dict[int, Trial] = attrs.field(factory=dict)
    """What the request of a thread of the proxy is to meet."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        """Stand in the proxy."""
        self.proxy.before, self.proxy.after, self.proxy.answered = self._before, self._after, self._answered

    def arm(self, wanted: Iterable[Trial]) -> None:
        """Let trials wait for their points."""
        with self._lock:
            for each in wanted:
                self._waiting.setdefault(each.point, deque()).append(each)

    @property
    def left(self) -> tuple[Trial, ...]:
        """The trials whose points did not occur often enough yet."""
        with self._lock:
            return tuple(each for waiting in self._waiting.values() for each in waiting)

    def _before(self, method: str, path: str) -> None:
        with self._lock:
            self._under_way.pop(threading.get_ident(), None)
            reached = (waiting for point, waiting in self._waiting.items() if waiting and point.is_met(method, path))
            met = next(reached, None)
            if met is None or self.is_dead:
                return
            self._under_way[threading.get_ident()] = met.popleft()
        self._meet(Moment.BEFORE)

    def _after(self, _method: str, _path: str) -> None:
        self._meet(Moment.SENT)

    def _answered(self, _method: str, _path: str) -> None:
        self._meet(Moment.ANSWERED)

    def _meet(self, moment: Moment) -> None:
        with self._lock:
            trial = self._under_way.get(threading.get_ident())
            if trial is None or trial.moment is not moment:
                return
            del self._under_way[threading.get_ident()]
            if self.is_dead and trial.fault in {Fault.KILL, Fault.PAUSE}:
                self._waiting[trial.point].appendleft(trial)
                return
            self.hit.append(trial)
            self.is_dead |= trial.fault is Fault.KILL
            pid = self.pid()
        match trial.fault:
            case Fault.KILL:
                os.kill(pid, signal.SIGKILL)
            case Fault.PAUSE:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self.pause)
                os.kill(pid, signal.SIGCONT)
            case Fault.ERROR:
                raise Instead(500)
            case Fault.LOST:
                raise ConnectionResetError("lost")


@attrs.define
class Points:
    """Rounds of work, in which each trial finds its point; the rig judges what came of it."""

    rig: Rig
    injector: Injector

    @classmethod
    def of(cls, rig: Rig, proxy: Proxy, *, pause: float = 1.0) -> "Points":
        """Begin with one replica, and with a load that only does what owners do."""
        rig.load.is_paused = True
        points = cls(rig, Injector(proxy, lambda: rig.replicas[0].program.daemon.pid, pause))
        rig.tend = points.revive
        rig.begin()
        rig.stage.await_ready()
        return points

    def run(self, wanted: Iterable[Trial], *, rounds: int, at_once: int) -> tuple[Trial, ...]:
        """Work until each trial found its point; return those that did not within so many rounds.

        ``at_once``: so many trials of a point wait for it in a round.

        Raises: TimeoutError, see `Rig.telling`.
        """
        resting = list(wanted)
        with self.rig.telling():
            for _ in range(rounds):
                waiting = Counter(each.point for each in self.injector.left)
                for trial in tuple(resting):
                    if waiting[trial.point] < at_once:
                        waiting[trial.point] += 1
                        resting.remove(trial)
                        self.injector.arm([trial])
                self.round()
                if not resting and not self.injector.left:
                    break
            self.rig.finish()
        return (*self.injector.left, *resting)

    def round(self) -> None:
        """Fill the cluster, take back what is another's, let it come to rest, and look what happened."""
        load = self.rig.load
        for kind in ("half", "half", "gang", "gang", "lone", "lone", "lone", "half", "lone"):
            load.submit(kind)
        self._await_pods("lone", "gang", "half")
        for _ in range(2):
            load.submit("claim")
        self._await_pods("claim")
        self.rig.settle()
        self.rig.look()
        load.is_paused = True
        load.shrink(0.0)

    def _await_pods(self, *kinds: str) -> None:
        """Wait until the pods of some kinds are bound, as far as they are still wanted."""

        def are_bound() -> bool:
            wanted = {pod for job in list(self.rig.load.jobs.values()) if job.kind in kinds for pod in set(job.pods)}
            return wanted <= self.rig.observer.bound_at.keys()

        self.rig.wait(are_bound, f"all pods of kind {' and '.join(kinds)} to be bound")

    def revive(self) -> None:
        """Start kai again if it was killed, as another life of its pod."""
        if self.injector.is_dead:
            (replica,) = self.rig.replicas
            self.rig.kill(replica)
            self.rig.begin(replica.pod)
            self.injector.is_dead = False
