"""Plans on old knowledge: watches that hang on an API server which stands still, and a store that goes back in time.

Two API servers share one etcd. The watches of kai, or those of some kinds, hang on the second one; everything else goes
to the first. The second one is frozen, things happen that kai does not see, and kai decides nevertheless. A *round* is
one such plan:

- *blind*: the only replica is blind to some kinds; then the second server wakes, or finds its past compacted when it
  does, or is killed and started again;
- *heir*: the leader is killed, and the replica that takes over has seen nothing for a while;
- *restarts*: both servers are killed and started again, one after the other, under load;
- *restored*: etcd is put back to a backup.

After each, what kai knows must become what there is, nothing may be lost or given twice (`Rig.settle`, `Rig.look`), and
no namesake of a pod may be evicted that kai had never seen.
"""

import io
import itertools
import json
import os
import random
import shutil
import signal
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from tests.integration.chaos.rig import Replica, Rig
from tests.integration.client import Api, Manifest, until
from tests.integration.controlplane import ControlPlane, Daemon, free_ports
from tests.integration.etcd import back_up, compact, put_back
from tests.integration.processes import fetch
from tests.integration.proxy import Fate, Proxy, proxied
from tests.integration.stage import BIND_REQUEST, POD_GROUP, QUEUE

KINDS: Final = {
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "queues": (QUEUE, "Queue"),
    "podgroups": (POD_GROUP, "PodGroup"),
    "bindrequests": (BIND_REQUEST, "BindRequest"),
}
"""What kai decides on, and so must know, by plurals."""
_IN_ARCHIVE: Final = {"podgroups": "podGroups", "bindrequests": "bindRequests"}
_ENDED: Final = ("Succeeded", "Failed")
BLIND_TO: Final = (("pods",), ("podgroups", "bindrequests"), ("nodes", "queues"), tuple(KINDS))
ENDINGS: Final = ("thaw", "compact", "kill")


@attrs.define
class SecondServer:
    """Another API server of the same etcd, with the same certificate and the same users."""

    daemon: Daemon
    api: Api

    @classmethod
    def beside(cls, plane: ControlPlane) -> "SecondServer":
        """Return one that is ready."""
        (port,) = free_ports(1)
        certificate = plane.folder / "certificates" / "apiserver"
        flags = (  # of a flag that is given twice, the last one counts
            f"--secure-port={port}",
            f"--tls-cert-file={certificate}.crt",
            f"--tls-private-key-file={certificate}.key",
            f"--audit-log-path={plane.folder / 'audit-2.log'}",
        )
        daemon = Daemon((*plane.apiserver.command, *flags), plane.folder / "kube-apiserver-2.log")
        url = f"{plane.url.rpartition(':')[0]}:{port}"
        server = cls(daemon, Api(url, plane.admin.ca_file, plane.admin.token))
        server.start()
        return server

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self.daemon.start()
        until(self._is_ready, "the second API server")

    def _is_ready(self) -> bool:
        _ = self.daemon.pid  # raises when it has died
        try:
            return bool(self.api.request("GET", "/readyz") == "ok")
        except Exception:  # noqa: BLE001 - whatever it is, it is not ready
            return False


@attrs.define
class Stale:
    """Rounds of plans on old knowledge."""

    rig: Rig
    proxy: Proxy
    second: SecondServer
    folder: Path
    random: random.Random
    blind_to: tuple[str, ...] = ()
    """The kinds whose watches are passed on to the second server."""
    rounds: int = 0
    current_after: list[float] = attrs.field(factory=list)
    """Seconds from when the servers work again until kai knows what there is."""
    differs: list[str] = attrs.field(factory=list)
    """What kai knew otherwise than it was, when that was looked at last."""
    _numbers: "itertools.count[int]" = attrs.field(factory=itertools.count)

    def __attrs_post_init__(self) -> None:
        """Stand in the proxy."""
        self.proxy.route = self._route

    def _route(self, _method: str, path: str) -> str:
        return self.second.api.url if "watch=true" in path and _plural(path) in self.blind_to else ""

    def begin(self) -> Replica:
        """Start a replica whose watches can be frozen, and wait until it is ready."""
        plane = self.rig.stage.plane
        plane.front = self.proxy.url
        try:
            replica = self.rig.begin()
        finally:
            plane.front = ""
        self.rig.stage.await_ready()
        return replica

    # --- Rounds --------------------------------------------------------------------------------------------------

    def blind(self, kinds: tuple[str, ...], ending: str) -> None:
        """Let the only replica be blind to some kinds for a while."""
        self._watch_the_second(kinds)
        with self._frozen():
            namesakes = self._change()
            time.sleep(self.random.uniform(1.0, 4.0))
            if ending == "compact":
                compact(self.rig.stage.plane)
            if ending == "kill":
                self.blind_to = ()
                self.second.daemon.stop(kill=True)
            if "pods" in kinds:
                self._look_for_evictions(namesakes)
        self._judge()
        if ending == "kill":
            self.second.start()

    def heir(self) -> None:
        """Let a replica that has seen nothing for a while take over from one that is killed."""
        (heir,) = self.rig.replicas
        self.rig.kill(heir)
        leader = self.rig.begin(heir.pod)
        self.rig.stage.await_ready()
        self.rig.recovery()
        heir = self.begin()
        self._watch_the_second(tuple(KINDS))
        with self._frozen():
            namesakes = self._change()
            self.rig.recovery()  # the leader goes on, and the other one sees nothing of it
            self.rig.kill(leader)
            by_leader = self._evicted()
            self.rig.wait(lambda: self.rig.leader() is heir, "the other replica to lead")
            time.sleep(1.0)
            self._look_for_evictions(namesakes - by_leader.keys())
        self._judge()

    def restarts(self) -> None:
        """Kill and start both servers, one after the other, while work comes."""
        self._watch_the_second(("pods", "podgroups"))
        self._change()
        self.second.daemon.stop(kill=True)
        self.second.start()
        self._change()
        with self.rig.load.resting():  # a job of which only a part was created would wait for ever
            self.rig.stage.plane.restart_apiserver(kill=True)
        self._judge()

    def restored(self, *, is_moved_on: bool) -> None:
        """Put etcd back to a backup, from which on a little has happened; both servers begin anew with it."""
        plane, backup = self.rig.stage.plane, self.folder / f"backup-{self.rounds}"
        self.blind_to = ()
        self._change()
        back_up(plane, backup)
        self._change()
        self.rig.recovery()
        self.second.daemon.stop(kill=True)
        with self.rig.load.resting():
            self.rig.observer.begin_anew()
            self.rig.history.begin_anew()
            put_back(plane, backup, is_moved_on=is_moved_on)
            self._make_good()
        shutil.rmtree(backup)
        self._judge()
        self.second.start()

    def drawn(self) -> tuple[str, Callable[[], None]]:
        """Return a round of any kind, with its name."""
        kinds, ending = self.random.choice(BLIND_TO), self.random.choice(ENDINGS)
        is_moved_on = self.random.random() < 0.5
        rounds: dict[str, Callable[[], None]] = {
            "blind": lambda: self.blind(kinds, ending),
            "heir": self.heir,
            "restarts": self.restarts,
            "restored": lambda: self.restored(is_moved_on=is_moved_on),
        }
        return self.random.choice(sorted(rounds.items()))

    # --- What happens in them ------------------------------------------------------------------------------------

    def _watch_the_second(self, kinds: tuple[str, ...]) -> None:
        """Let the watches of some kinds hang on the second server."""
        self.blind_to = kinds
        self.proxy.end_watches(Fate.CUT)

        def are_there() -> bool:
            watched = {_plural(each.path) for each in list(self.proxy.watches) if each.fate is None}
            return set(kinds) <= watched

        until(are_there, f"the watches of {', '.join(kinds)} to be open")

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        os.kill(self.second.daemon.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if self.blind_to:
                os.kill(self.second.daemon.pid, signal.SIGCONT)

    def _change(self) -> set[str]:
        """Let jobs come and go, and pods be replaced by namesakes; return the UIDs of these."""
        load = self.rig.load
        load.burst(3)
        load.submit("claim")
        load.shrink(0.9)
        with load.resting():
            lone = sorted(pod for job in load.jobs.values() if job.kind == "lone" for pod in job.pods)
            made = map(self._replaced, self.random.sample(lone, min(2, len(lone))))
            return {uid for uid in made if uid}

    def _replaced(self, name: str) -> str:
        """Put a namesake in the place of a pod, if it is still there; return its UID, empty if there is none."""
        stage = self.rig.stage
        pod = stage.find("v1", "Pod", name)
        if pod is None:
            return ""
        stage.api.delete(pod, gracePeriodSeconds=0)
        kept = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
        spec = {key: pod["spec"][key] for key in ("containers", "schedulerName")}
        made = stage.create({"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec})
        return str(made["metadata"]["uid"])

    def _make_good(self) -> None:
        """Do what users do after a backup: delete the pods that it brought back, create the groups that it lost."""
        jobs, stage = self.rig.load.jobs.values(), self.rig.stage
        wanted = {pod for job in jobs for pod in job.pods}
        for pod in stage.pods():
            if pod["metadata"]["name"] not in wanted:
                stage.delete("v1", "Pod", pod["metadata"]["name"])
        for manifest in itertools.chain.from_iterable(running.job.manifests() for running in jobs):
            if manifest["kind"] != "Pod":
                stage.api.ensure(stage.placed(manifest))

    # --- Judging -------------------------------------------------------------------------------------------------

    def _look_for_evictions(self, namesakes: set[str]) -> None:
        """Note evictions of pods that kai cannot have seen."""
        found = {uid: name for uid, name in self._evicted().items() if uid in namesakes}
        self.rig.report.orphans += [f"{name} ({uid}) was evicted for a pod of its name" for uid, name in found.items()]

    def _evicted(self) -> dict[str, str]:
        """Return the names of pods that were evicted so far, by UID."""
        self.rig.history.read()
        return {each.uid: each.key[1] for each in self.rig.history.writes if each.what == "pods/eviction"}

    def _judge(self) -> None:
        """Wait until kai knows what there is, and until everything rests; look what happened."""
        since = time.monotonic()
        self.rig.load.is_paused = True
        try:
            self.rig.wait(self._is_current, "kai to know what there is", every=0.2)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.differs}") from error
        self.current_after.append(time.monotonic() - since)
        self.rig.settle()
        self.rig.look()
        self.rounds += 1

    def _is_current(self) -> bool:
        """Return whether the leader knows the objects that are there; nodes are touched so that it looks."""
        stage = self.rig.stage
        for each in stage.api.list("v1", "Node"):
            stage.api.patch(each, {"metadata": {"annotations": {"tests/touched": str(next(self._numbers))}}})
        try:
            known = _known(self.rig.leader())
        except OSError:  # it may end its listener as it loses its term
            return False
        there = {plural: stage.api.list(*KINDS[plural]) for plural in KINDS}
        found = [f"{plural} {sorted(known[plural] ^ _names(plural, each))}" for plural, each in there.items()]
        self.differs = [each for each in found if not each.endswith("[]")]
        return not self.differs


def _plural(path: str) -> str:
    return path.partition("?")[0].rpartition("/")[2]


def _known(replica: Replica) -> dict[str, set[str]]:
    """Return what the last cycle of a replica was given, by plurals."""
    archive = zipfile.ZipFile(io.BytesIO(fetch(replica.program.plugins_port, "/get-snapshot")))
    raw: dict[str, Any] = json.loads(archive.read("snapshot.json"))["rawObjects"]
    return {plural: _names(plural, raw[_IN_ARCHIVE.get(plural, plural)]) for plural in KINDS}


def _names(plural: str, manifests: list[Manifest]) -> set[str]:
    """Return names and UIDs, without those of pods that have ended."""
    alive = [each for each in manifests if plural != "pods" or each.get("status", {}).get("phase") not in _ENDED]
    return {f"{each['metadata']['name']} {each['metadata'].get('uid', '')}" for each in alive}


@contextmanager
def made_stale(rig: Rig, folder: Path) -> Iterator[Stale]:
    """Start the second server and the first replica."""
    plane = rig.stage.plane
    second = SecondServer.beside(plane)
    try:
        with proxied(plane) as proxy:
            stale = Stale(rig, proxy, second, folder, random.Random(rig.plan.seed + 2))
            with rig.telling():
                stale.begin()
                rig.recovery()
                yield stale
    finally:
        second.daemon.stop(kill=True)
