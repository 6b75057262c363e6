"""Clusters of devices as Kubernetes' allocator and kai serve them.

A cluster is drawn from a number: selectors that may fail, devices that are shared, partitions that draw from counters,
several pools, drivers and generations, pools that are not all there, requests for all devices, constraints and
alternatives. Its pods are served one after the other on one node, ``n1``; ``n2`` has devices of the same pools.
Whoever disagrees at one pod goes on from different states, so clusters are compared up to the first difference.
"""

import random
from typing import Any

from kai.actions.allocate import Allocate
from kai.api.cluster_objects import collect
from kai.api.codec.structuring import structure_all
from kai.basics.kubernetes_version import V1_37, KubernetesVersion
from kai.basics.parsing import canonical
from kai.deciding.engine.cycle import Profile
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.facts.model.placement import DeviceAllocation
from kai.framework.decisions import Bind, Recorder
from kai.framework.hooks import PluginUse
from kai.framework.parameters import Parameters
from kai.intake import IntakeSettings, take_snapshot
from kai.plugins.dra import Dra
from kai.plugins.order import Priority

Document = dict[str, Any]
DRIVERS = ("dev.example.com", "nic.example.com")
CLASS = "dc"
API = "resource.k8s.io/v1"
_NOW = 1_767_268_800.0
# One for all clusters: it remembers expressions that it compiled.
_PLUGINS = (PluginUse(name="dynamicresources", plugin=Dra()), PluginUse(name="priority", plugin=Priority()))


def drawn(seed: int) -> Document:
    """Return the cluster of a number, as the program reads it; every Python draws the same one."""
    return _Drawing(random.Random(seed)).cluster()


class _Drawing:
    """One cluster being drawn."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.fails = self.chance(0.3)
        """Whether selectors may ask devices for an attribute that they lack."""

    def chance(self, share: float) -> bool:
        return self.source.random() < share

    def choice(self, *among: Any) -> Any:
        return among[int(self.source.random() * len(among))]

    def cluster(self) -> Document:
        slices: list[Document] = []
        for number in range(self.choice(1, 1, 2, 2, 3)):
            slices += self.pool(number)
        claims: list[Document] = []
        names: list[list[str]] = []
        for pod in range(self.choice(1, 2, 2, 3)):
            own = [f"c{pod}-{at}" for at in range(self.choice(1, 1, 1, 2))]
            claims += map(self.claim, own)
            names.append(own)
        slices.sort(key=lambda _: self.source.random())
        selector = self.choice(f'device.driver == "{DRIVERS[0]}"', 'device.driver.endsWith("example.com")')
        spec = {"selectors": [{"cel": {"expression": selector}}]}
        return {
            "node": _node("n1"),
            "classes": [{"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": spec}],
            "slices": slices,
            "claims": claims,
            "pods": names,
        }

    # ------------------------------------------------------------------ slices

    def pool(self, number: int) -> list[Document]:
        """Return the slices of a pool; now and then one is missing, is old, or names a device twice."""
        driver = self.choice(DRIVERS[0], DRIVERS[0], DRIVERS[0], DRIVERS[1])
        counters = self.chance(0.35)
        wide = self.choice("n1", "n1", "n1", "n1", "all", "labels", "each")
        parts: list[Document] = []
        if counters:
            parts.append({"sharedCounters": [self.counter_set(at) for at in range(self.choice(1, 1, 2))]})
        device = 0
        for _ in range(self.choice(1, 1, 2) if parts else self.choice(1, 1, 1, 2, 3)):
            many = self.choice(2, 2, 3, 4)
            devices = [self.device(f"d{device + at}", counters=counters, each=wide == "each") for at in range(many)]
            device += many
            if self.chance(0.02):
                devices[-1]["name"] = "d0"
            parts.append({"devices": devices})
        generation = self.choice(1, 1, 1, 2)
        count = len(parts) + int(self.chance(0.04))
        slices = [self.slice(number, at, driver, wide, each, generation, count) for at, each in enumerate(parts)]
        if len(slices) > 1 and self.chance(0.05):
            del slices[1 + int(self.source.random() * (len(slices) - 1))]
        if wide == "n1" and len(slices) > 1 and self.chance(0.15):
            slices[-1]["spec"]["nodeName"] = "n2"
        if generation > 1 and self.chance(0.5):
            old = {"devices": [self.device("d0", counters=False, each=False)]}
            slices.append(self.slice(number, 9, driver, "n1", old, generation - 1, self.choice(1, 2)))
        return slices

    def slice(
        self, pool: int, at: int, driver: str, wide: str, part: Document, generation: int, count: int
    ) -> Document:
        where: Document = {"nodeName": "n1"}
        if wide == "all":
            where = {"allNodes": True}
        elif wide == "labels":
            where = {"nodeSelector": _terms("zone", self.choice("a", "a", "b"))}
        elif wide == "each":
            where = {"perDeviceNodeSelection": True} if "devices" in part else {"allNodes": True}
        ident = {"name": f"p{pool}", "generation": generation, "resourceSliceCount": count}
        spec = {"driver": driver, "pool": ident, **where, **part}
        return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"s{pool}-{at}"}, "spec": spec}

    def counter_set(self, at: int) -> Document:
        return {"name": f"k{at}", "counters": {"mem": {"value": str(self.choice(2, 4, 8))}}}

    def device(self, name: str, *, counters: bool, each: bool) -> Document:
        attributes: Document = {}
        if not self.fails or self.chance(0.7):
            attributes["model"] = {"string": self.choice("a", "b")}
        if self.chance(0.6):
            attributes["numa"] = {"int": self.choice(0, 0, 1)}
        if self.chance(0.2):
            attributes["driver"] = self.choice({"version": "1.2.3"}, {"string": "1.2.3"}, {"version": "1.3.0"})
        made: Document = {"name": name, "attributes": attributes}
        if self.chance(0.4):
            key = self.choice("mem", "mem", "mem", f"{DRIVERS[0]}/mem")
            made["capacity"] = {key: self.capacity(shared=self.chance(0.6), into=made)}
        elif self.chance(0.1):
            made["allowMultipleAllocations"] = True
        if counters and self.chance(0.8):
            amount = str(self.choice(1, 2, 2, 3))
            consumed = {"counterSet": "k1" if self.chance(0.08) else "k0", "counters": {"mem": {"value": amount}}}
            made["consumesCounters"] = [consumed]
        if each:
            made |= self.choice(
                {"nodeName": "n1"},
                {"nodeName": "n1"},
                {"allNodes": True},
                {"nodeName": "n2"},
                {"nodeSelector": _terms("zone", "a")},
            )
        if self.chance(0.08):
            made["taints"] = [{"key": "bad", "value": "x", "effect": self.choice("NoSchedule", "NoExecute", "None")}]
        return made

    def capacity(self, *, shared: bool, into: Document) -> Document:
        value: Document = {"value": str(self.choice(2, 4, 8))}
        if not shared:
            return value
        into["allowMultipleAllocations"] = True
        policy = self.choice(
            None,
            None,
            {"default": "1"},
            {"default": "2", "validRange": {"min": "1", "max": "4", "step": "1"}},
            {"default": "2", "validRange": {"min": "2", "step": "2"}},
            {"default": "500m", "validRange": {"min": "500m", "step": "500m"}},
            {"default": "1", "validValues": ["1", "2", "4"]},
        )
        return value if policy is None else value | {"requestPolicy": policy}

    # ------------------------------------------------------------------ claims

    def claim(self, name: str) -> Document:
        requests = [self.request(f"r{at}") for at in range(self.choice(1, 1, 1, 2, 3))]
        devices: Document = {"requests": requests}
        if self.chance(0.3):
            kind = self.choice("matchAttribute", "matchAttribute", "distinctAttribute")
            attribute = f"{DRIVERS[0]}/{self.choice('model', 'numa', 'numa', 'driver')}"
            only = [self.choice(*requests)["name"]] if self.chance(0.2) else []
            devices["constraints"] = [{kind: attribute, **({"requests": only} if only else {})}]
        metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"kai.scheduler/queue": "team"}}
        return {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}}

    def request(self, name: str) -> Document:
        if self.chance(0.2):
            ways = [{"name": f"s{at}", **self.way()} for at in range(self.choice(2, 2, 3))]
            return {"name": name, "firstAvailable": ways}
        exact = self.way()
        if self.chance(0.06):
            exact["adminAccess"] = True
        return {"name": name, "exactly": exact}

    def way(self) -> Document:
        made: Document = {"deviceClassName": CLASS}
        if self.chance(0.2):
            made["allocationMode"] = "All"
        else:
            made |= {"allocationMode": "ExactCount", "count": self.choice(1, 1, 1, 1, 2, 3)}
        if self.chance(0.4):
            made["selectors"] = [{"cel": {"expression": self.expression()}}]
        if self.chance(0.2):
            key = self.choice("mem", "mem", "mem", f"{DRIVERS[0]}/mem")
            made["capacity"] = {"requests": {key: self.choice("1", "2", "3", "500m", "4")}}
        if self.chance(0.1):
            made["tolerations"] = [{"key": "bad", "operator": "Exists"}]
        return made

    def expression(self) -> str:
        mine = f'device.attributes["{DRIVERS[0]}"]'
        choices = [
            f'"model" in {mine} && {mine}.model == "a"',
            f'!("numa" in {mine}) || {mine}.numa == 0',
            "device.allowMultipleAllocations == true",
            f'"{DRIVERS[0]}" in device.attributes',
        ]
        if self.fails:
            choices += [f'{mine}.model == "a"', f"{mine}.numa > 0", f'device.capacity["{DRIVERS[0]}"].mem.isInteger()']
        return self.choice(*choices)


def _terms(key: str, value: str) -> Document:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]}


def _node(name: str) -> Document:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": "a" if name == "n1" else "b"}},
        "spec": {} if name == "n1" else {"unschedulable": True},
        "status": {"allocatable": amounts},
    }


# ---------------------------------------------------------------------- what kai makes of it


def answers(cluster: Document, version: KubernetesVersion) -> list[list[Document] | None]:
    """Return which devices kai gives to each pod on ``n1``; None for one that gets no place."""
    manifests = [_node("n1"), _node("n2"), *cluster["classes"], *cluster["slices"], *cluster["claims"], *_pods(cluster)]
    snapshot = take_snapshot(collect(structure_all(manifests).objects), _NOW, IntakeSettings(kubernetes=version))
    recorder = Recorder()
    session = Session(snapshot, Profile(actions=(), plugins=_PLUGINS, parameters=Parameters()), recorder, Silent())
    Allocate().run(session)
    bound = {
        snapshot.pods[each.pod].name: _devices(each)
        for each in recorder.decisions
        if isinstance(each, Bind) and snapshot.nodes[each.node].name == "n1"
    }
    return [bound.get(f"p{at}-0") for at in range(len(cluster["pods"]))]


def _devices(bind: Bind) -> list[Document]:
    claims = bind.request.get("resourceClaimAllocations", ())  # type: ignore[attr-defined]  # a document here
    allocations = [each["allocation"] for each in claims]
    assert all(isinstance(each, DeviceAllocation) for each in allocations)
    return [
        {
            "claim": allocation.claim.partition("/")[2],
            "request": each.request,
            "pool": each.pool,
            "device": each.device,
            **(
                {"consumed": {name: canonical(amount, 1000) for name, amount in each.consumed}} if each.consumed else {}
            ),
        }
        for allocation in allocations
        for each in allocation.devices
    ]


def _pods(cluster: Document) -> list[Document]:
    """Return the pods, each with a group, in the order in which kai serves them, and their queue."""
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    out: list[Document] = [
        {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"parentQueue": parent, "resources": {"cpu": unlimited, "memory": unlimited, "gpu": unlimited}},
        }
        for name, parent in (("top", ""), ("team", "top"))
    ]
    for at, claims in enumerate(cluster["pods"]):
        metadata = {"name": f"p{at}-0", "namespace": "default", "uid": f"p{at}-0"}
        references = [{"name": each, "resourceClaimName": each} for each in claims]
        spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "m"}], "resourceClaims": references}
        annotations = {"pod-group-name": f"p{at}"}
        out.append(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"annotations": annotations}, "spec": spec}
        )
        times = {"name": f"p{at}", "uid": f"p{at}", "creationTimestamp": f"2026-01-01T00:00:0{at}Z"}
        out.append(
            {
                "apiVersion": "scheduling.run.ai/v2alpha2",
                "kind": "PodGroup",
                "metadata": times | {"namespace": "default"},
                "spec": {"queue": "team", "minMember": 1},
            }
        )
    return out


# ---------------------------------------------------------------------- where they differ


def difference(cluster: Document, theirs: list[Document], version: KubernetesVersion) -> tuple[int, str] | None:
    """Return the first pod for which kai decides otherwise than Kubernetes did, and how; None if there is none."""
    for at, (mine, answered) in enumerate(zip(answers(cluster, version), theirs, strict=True)):
        if mine != answered["devices"]:
            return at, f"pod {at}: kai {mine}, Kubernetes {answered['devices']} {answered.get('aborts', '')}"
    return None


def explained(cluster: Document, theirs: list[Document], version: KubernetesVersion, pod: int) -> str:
    """Return under which row of docs/differences.md the difference at a pod falls, "" if under none."""
    slices = [each["spec"] for each in cluster["slices"]]
    if any(map(_is_behind, slices, [slices] * len(slices))):
        return "a pool whose newer generation has no slice for a node"
    if _repeats_names(slices):
        return "a pool that names a device twice, on different nodes"
    if "CEL" in theirs[pod].get("aborts", "") and any(each.get("perDeviceNodeSelection") for each in slices):
        return "a selector that fails on a device of another node"
    return _explained_before(cluster, slices, pod) if version < V1_37 else ""


def _explained_before(cluster: Document, slices: list[Document], pod: int) -> str:
    """Return under which row a difference to 1.36 falls, whose faults 1.37 has mended."""
    devices = [device for each in slices for device in each.get("devices", ())]
    if any(
        device.get("allowMultipleAllocations") and "capacity" not in device and "consumesCounters" in device
        for device in devices
    ):
        return "1.36: shares of a device without capacities draw from counters once for each pod"
    claims = [each["spec"]["devices"] for each in cluster["claims"] if each["metadata"]["name"] in cluster["pods"][pod]]
    if any("distinctAttribute" in each for claim in claims for each in claim.get("constraints", ())):
        return "1.36: devices of one request differ from the one before them only"
    capacities = [each for device in devices for each in device.get("capacity", {}).values()]
    if any("validRange" in each.get("requestPolicy", {}) for each in capacities):
        return "1.36: parts of a unit are cut off in a range"
    return ""


def _is_behind(one: Document, slices: list[Document]) -> bool:
    """Return whether n1 sees a slice of a generation of which it does not see the newer one."""
    same = [each for each in slices if (each["driver"], each["pool"]["name"]) == (one["driver"], one["pool"]["name"])]
    newest = max(each["pool"]["generation"] for each in same)
    if one["pool"]["generation"] == newest or not _is_seen(one):
        return False
    return not any(_is_seen(each) for each in same if each["pool"]["generation"] == newest)


def _is_seen(spec: Document) -> bool:
    if spec.get("perDeviceNodeSelection"):
        return any(_is_seen(device) for device in spec["devices"])
    if "nodeSelector" in spec:
        return bool(spec["nodeSelector"] == _terms("zone", "a"))
    return bool(spec.get("allNodes")) or spec.get("nodeName") == "n1"


def _repeats_names(slices: list[Document]) -> bool:
    """Return whether slices of one pool and generation name a device twice, of which n1 sees one."""
    seen: dict[tuple[str, ...], list[bool]] = {}
    for spec in slices:
        for device in spec.get("devices", ()):
            key = (spec["driver"], spec["pool"]["name"], str(spec["pool"]["generation"]), device["name"])
            seen.setdefault(key, []).append(_is_seen(spec))
    return any(len(found) > 1 and not all(found) for found in seen.values())
