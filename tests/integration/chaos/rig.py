"""The rig: replicas of kai that are killed and frozen at drawn moments, under load, while everything is looked at.

An event is one of three. *Restart*: the only replica is killed and started again as the same pod, sometimes killed once
more before it is ready. *Stand-by*: of two replicas the leader is killed for good. *Freeze*: the leader is stopped, the
other one takes over, and the first one wakes. After each, the watch and the audit log say whether anything was given
twice; now and then the load rests, and everything must come to rest with it.
"""

import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from kai.cluster.process.decisions import read_decisions
from tests.integration.chaos.beneficiaries import Beneficiaries
from tests.integration.chaos.history import History, life_of
from tests.integration.chaos.load import Load
from tests.integration.chaos.observer import GPU, GROUP, Observer, held_by
from tests.integration.chaos.report import Report
from tests.integration.chaos.waiting import until_in_a_term
from tests.integration.client import Manifest, until
from tests.integration.controlplane import ControlPlane
from tests.integration.installation import install
from tests.integration.processes import NAMESPACE, Program
from tests.integration.stage import BIND_REQUEST, Stage, an_object, node, queue, staged
from tests.unit.deploy.rendering import DEPLOY, load

NODES = 12
GPUS = 8
_BEFORE_READY = 0.3
_DECISIONS: Final = ".decisions"
"""How the files end in which the lives of kai write their decisions."""
_AWAKE = 3.0
"""How long a woken replica is watched before the next event."""
_CALM = 0.6
"""What share of the cluster the load wants while everything comes to rest."""
_LEASE: Final = an_object("coordination.k8s.io/v1", "Lease", "kai-scheduler", metadata={"namespace": NAMESPACE})
_TOLD: Final = ("leading", "cannot be reached", "reachable again")


@attrs.frozen(kw_only=True)
class Plan:
    """What is to happen."""

    restarts: int = 0
    standbys: int = 0
    freezes: int = 0
    seed: int = 1
    lease: tuple[float, float, float] = (15.0, 10.0, 2.0)
    """Duration, renew deadline, retry period, in seconds."""
    fenced: bool = True
    """Whether the policy is left in place by which the API server refuses what was decided in an earlier term."""
    settle_every: int = 8
    nodes: int = NODES
    is_patient: bool = True
    """Whether each life of kai begins from nothing, as one of a pod does; recoveries are measured so."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the flags with which kai runs."""
        names = ("lease-duration", "renew-deadline", "retry-period")
        times = (f"--leader-elect-{name}={value:g}s" for name, value in zip(names, self.lease, strict=True))
        return ("--leader-elect", *times)


@attrs.frozen
class Replica:
    """One life of one pod of kai."""

    program: Program
    life: str
    pod: dict[str, str]
    """What its environment says about the pod."""


@attrs.define
class Rig:
    """Two replicas at most, and everything around them."""

    stage: Stage
    plan: Plan
    load: Load
    observer: Observer
    history: History
    report: Report
    random: random.Random
    replicas: list[Replica] = attrs.field(factory=list)
    variables: dict[str, str] = attrs.field(factory=dict)
    """What the environment of the next replicas says besides."""
    tend: Callable[[], None] = lambda: None
    """Called now and then while something is awaited."""
    _lives: int = 0
    _events: int = 0

    # --- Replicas ------------------------------------------------------------------------------------------------

    def begin(self, pod: dict[str, str] | None = None) -> Replica:
        """Start a replica, as a pod of its own or as another life of one."""
        self._lives += 1
        known = pod or {"POD_NAME": f"kai-{self._lives}", "POD_UID": str(uuid.UUID(int=self.random.getrandbits(128)))}
        api = self.stage.plane.account(NAMESPACE, "kai")
        name = f"life-{self._lives}"
        environment = {**known, **self.variables}
        flags = (*self.plan.flags, f"--decision-log={self.stage.folder / name}{_DECISIONS}")
        program = self.stage.begin(name, flags=flags, api=api, environment=environment)
        replica = Replica(program, life_of(api), known)
        self.replicas.append(replica)
        return replica

    def kill(self, replica: Replica) -> float:
        """Kill a replica, and return when."""
        self.stage.stop(replica.program, kill=True)
        self.replicas.remove(replica)
        self.report.kills += 1
        return time.monotonic()

    def leader(self) -> Replica:
        """Return the replica that leads, once one does."""

        def found() -> Replica | None:
            self.history.read()
            terms = self.history.terms()
            return next((each for each in self.replicas if terms and each.life == terms[-1].life), None)

        leader: Replica = until(found, "a leader")
        return leader

    # --- Events --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Carry out the plan. Raises: TimeoutError, see `telling`."""
        with self.telling():
            self.begin()
            self.stage.await_ready()
            self.recovery()  # the first binds warm up what the first events are not to wait for
            self._carry_out([self.restart] * self.plan.restarts)
            if self.plan.standbys or self.plan.freezes:
                self.begin()
                self.stage.await_ready()
                events = [self.standby] * self.plan.standbys + [self.freeze] * self.plan.freezes
                self.random.shuffle(events)
                self._carry_out(events)
            self.settle()
            self.finish()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Tell what is known so far, and what the lives of kai wrote, if kai does nothing any more.

        Raises: TimeoutError that says so.
        """
        try:
            yield
        except TimeoutError as error:
            self.look()
            raise TimeoutError(f"{error}\n{self.report.text()}\n{self.told()}\n{self.stage.logs()}") from error

    def _carry_out(self, events: list[Callable[[], None]]) -> None:
        for event in events:
            self._lead_in()
            event()
            self.look()
            self._events += 1
            if self._events % self.plan.settle_every == 0:
                self.settle()

    def _lead_in(self) -> None:
        """Wait for a drawn moment, half of the times one in which much is being written."""
        time.sleep(self.random.uniform(0.2, 2.0))
        if self.random.random() < 0.5:
            self.load.burst(6)
            time.sleep(self.random.uniform(0.0, 0.5))

    def restart(self) -> None:
        """Kill the only replica; the kubelet starts its container again."""
        (replica,) = self.replicas
        since = self.kill(replica)
        if self.random.random() < _BEFORE_READY:
            again = self.begin(replica.pod)
            time.sleep(self.random.uniform(0.1, 4.0))
            self.report.kills_before_ready += not again.program.is_ready()
            since = self.kill(again)
        self.begin(replica.pod)
        self.report.restarts.append(self.recovery(since))

    def standby(self) -> None:
        """Kill the leader for good; a new pod comes when the other one leads."""
        since = self.kill(self.leader())
        self.report.standbys.append(self.recovery(since))
        self.begin()
        self.stage.await_ready()

    def freeze(self) -> None:
        """Stop the leader until the other one leads, and let it wake."""
        frozen = self.leader()
        pid = frozen.program.daemon.pid
        os.kill(pid, signal.SIGSTOP)
        since = time.monotonic()
        try:
            self.report.freezes.append(self.recovery(since))
            self.load.burst(3)
            time.sleep(self.random.uniform(0.0, 4.0))
        finally:
            os.kill(pid, signal.SIGCONT)
        time.sleep(_AWAKE)

    def recovery(self, since: float = 0.0) -> float:
        """Return after how many seconds a pod that is created now is bound."""
        (probe,) = self.load.submit("probe").pods
        self.wait(lambda: probe in self.observer.bound_at, f"{probe} to be bound")
        self.stage.delete("v1", "Pod", probe)
        return self.observer.bound_at[probe] - since

    def wait(self, condition: Callable[[], Any], what: str, *, every: float = 0.05) -> None:
        """Wait until a condition is true, within one term. Raises: TimeoutError."""

        def tended() -> Any:
            self.tend()
            return condition()

        until_in_a_term(tended, self.epoch, what, every=every)

    def epoch(self) -> int:
        """Return which term this is; 0 before the first."""
        lease = self.stage.api.find(_LEASE)
        return 0 if lease is None else int(lease["spec"].get("leaseTransitions") or 0)

    # --- Looking -------------------------------------------------------------------------------------------------

    def told(self) -> str:
        """Return what all lives wrote about their terms and the API server."""
        found: list[str] = []
        for log in sorted(self.stage.folder.glob("life-*.log")):
            lines = log.read_text(errors="replace").splitlines()
            found += [f"{log.stem}: {line}" for line in lines if any(each in line for each in _TOLD)]
        return "\n".join(found)

    def look(self) -> None:
        """Take stock of what happened so far."""
        self.history.read()
        self.report.take(self.history, self.observer, self.load)

    def settle(self) -> None:
        """Let the load rest, and note what does not come to rest with it."""
        self.load.is_paused = True
        self.load.shrink(_CALM)
        try:
            self.wait(lambda: not self.unsettled(), "everything to come to rest", every=0.5)
        except TimeoutError:
            self.report.orphans += self.unsettled()
        self.report.settled += 1
        self.load.is_paused = False

    def unsettled(self) -> list[str]:
        """Return what is not as it has to be when nothing goes wrong any more."""
        pods = self.stage.pods()
        found = [_waits(pod) for pod in pods if not pod["spec"].get("nodeName")]
        for name, (bound, wanted) in self.load.gang_sizes(pods).items():
            if bound not in {0, wanted}:
                found.append(f"{name} has {bound} of {wanted} pods bound")
        used = {held.group for held in map(held_by, pods) if held is not None and held.group}
        reserved = [pod["metadata"]["labels"].get(GROUP, "") for pod in self.stage.reservations()]
        found += [f"a reservation of {group} without users" for group in reserved if group not in used]
        found += [f"no reservation of {group}, which is used" for group in used - set(reserved)]
        found += [f"{len(reserved)} reservations of {len(set(reserved))} groups"] * (len(set(reserved)) < len(reserved))
        there = {pod["metadata"]["name"] for pod in pods}
        for each in self.stage.api.list(BIND_REQUEST, "BindRequest", self.stage.space):
            phase = each.get("status", {}).get("phase", "")
            if phase not in {"Succeeded", "Failed"} and each["spec"]["podName"] in there:
                found.append(f"bind request {each['metadata']['name']} is {phase or 'not begun'}")
        return found

    def beneficiaries(self) -> Beneficiaries:
        """Return what the lives of kai have written of evictions, beside what the server did."""
        self.history.read()
        logs = sorted(self.stage.folder.glob(f"life-*{_DECISIONS}"))
        decisions = (each for log in logs for each in read_decisions(str(log)))
        waiting = [pod["metadata"]["name"] for pod in self.stage.pods() if not pod["spec"].get("nodeName")]
        return Beneficiaries.of(self.history.writes, decisions, waiting)

    def finish(self) -> None:
        """Take all work away; nothing may be left of it."""
        self.load.stop()
        self.report.judge(self.beneficiaries())
        self.load.shrink(0.0)
        try:
            self.wait(lambda: not self.stage.reservations(), "the last reservation to go", every=0.5)
        except TimeoutError:
            self.report.orphans.append(f"{len(self.stage.reservations())} reservations after everything was deleted")
        self.look()


def _waits(pod: Manifest) -> str:
    """Return that a pod waits, and what it was told."""
    conditions = pod.get("status", {}).get("conditions", ())
    told = "; ".join(f"{each['type']}: {each.get('message', '')}" for each in conditions)
    return f"{pod['metadata']['name']} waits ({told or 'it was told nothing'})"


@contextmanager
def rigged(plane: ControlPlane, folder: Path, plan: Plan) -> Iterator[Rig]:
    """Set a rig up on an empty control plane."""
    install(plane, DEPLOY / "base")
    if not plan.fenced:
        for manifest in load(DEPLOY / "policies" / "terms.yaml"):
            plane.admin.delete(manifest)
    with staged(plane, folder) as stage:
        stage.is_patient = plan.is_patient
        stage.open()
        names = [f"n{number}" for number in range(plan.nodes)]
        for manifest in (*(node(name, gpu=GPUS) for name in names), queue("top")):
            stage.create(manifest)
        stage.create(queue("team", "top"))
        stage.create(queue("owner", "top", gpu={"quota": plan.nodes * GPUS // 2}))
        draw = random.Random(plan.seed)
        chaos = Rig(
            stage=stage,
            plan=plan,
            load=Load(stage, random.Random(plan.seed + 1), plan.nodes * GPUS),
            observer=Observer(plane.admin, dict.fromkeys(names, GPUS)),
            history=History(plane.folder / "audit.log"),
            report=Report(plan.seed),
            random=draw,
        )
        chaos.observer.start()
        chaos.load.start()
        try:
            yield chaos
        finally:
            chaos.load.stop()
            chaos.observer.stop()


__all__ = ["GPU", "Plan", "Rig", "rigged"]
