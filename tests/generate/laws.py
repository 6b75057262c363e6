"""Check that a finished scenario is valid: names, references, and that nothing is given to two pods at once.

This reads the objects as a stranger would and knows nothing of how they were drawn, so that a slip of the generator's
book-keeping shows here and not as a puzzle in somebody's scheduler.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from typing import Any

from attrs import define

GPU = "nvidia.com/gpu"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_SUFFIXES = {"": 1, "m": Fraction(1, 1000), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SUFFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"([0-9.]+)([a-zA-Z]*)")

Object = Mapping[str, Any]


def broken_laws(scenario: Mapping[str, Any]) -> list[str]:
    """Say everything that is wrong with ``scenario``; nothing where it is valid."""
    cluster = _Cluster(scenario["objects"])
    return [
        *_names(cluster),
        *_times(cluster, scenario["now"]),
        *_references(cluster),
        *_group_trees(cluster),
        *_standing(cluster),
        *_nodes(cluster),
        *_shared_devices(cluster),
        *_zones(cluster),
        *_claimed_devices(cluster),
        *_volumes(cluster),
    ]


def amount(quantity: object) -> Fraction:
    """Read a quantity exactly."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"quantity {quantity!r}: expected a number with a suffix such as m, Gi or none")
    return Fraction(match[1]) * _SUFFIXES[match[2]]


@define(slots=False)
class _Cluster:
    objects: list[Object]

    @cached_property
    def by_kind(self) -> dict[str, dict[str, Object]]:
        """Find objects by kind and name."""
        found: dict[str, dict[str, Object]] = defaultdict(dict)
        for each in self.objects:
            found[each["kind"]][each["metadata"]["name"]] = each
        return found

    @cached_property
    def active(self) -> list[tuple[Object, str]]:
        """List the pods that hold something, each with its node."""
        requests = {r["spec"]["podName"]: r["spec"]["selectedNode"] for r in self.by_kind["BindRequest"].values()}
        held = []
        for name, pod in self.by_kind["Pod"].items():
            node = pod["spec"].get("nodeName") or requests.get(name)
            if node and pod["status"]["phase"] in {"Running", "Pending"}:
                held.append((pod, node))
        return held

    def shared_by(self, pod: Object) -> list[str]:
        """List the shared devices that ``pod`` is on."""
        request = self.by_kind["BindRequest"].get(pod["metadata"]["name"])
        if request:
            return request["spec"].get("selectedGPUGroups", [])
        labels = pod["metadata"].get("labels", {})
        return [value for key, value in labels.items() if key.partition("/")[0] == "runai-gpu-group"]


def _names(cluster: _Cluster) -> Iterator[str]:
    seen = Counter((each["kind"], each["metadata"]["name"]) for each in cluster.objects)
    yield from (f"{kind} {name} exists {count} times" for (kind, name), count in seen.items() if count > 1)
    yield from (f"{kind} {name}: not a valid name" for kind, name in seen if not _NAME.fullmatch(name))


def _times(cluster: _Cluster, now: str) -> Iterator[str]:
    end = datetime.fromisoformat(now)
    for each in cluster.objects:
        metadata = each["metadata"]
        found = {key: metadata[key] for key in ("creationTimestamp", "deletionTimestamp") if key in metadata}
        found |= {key: value for key, value in metadata.get("annotations", {}).items() if key.endswith("-timestamp")}
        for key, value in found.items():
            if datetime.fromisoformat(value) > end:
                yield f"{each['kind']} {metadata['name']}: {key} {value} is later than now"


def _references(cluster: _Cluster) -> Iterator[str]:
    for owner, kind, name in _all_references(cluster):
        if name not in cluster.by_kind[kind]:
            yield f"{owner}: {kind} {name} does not exist"


def _all_references(cluster: _Cluster) -> Iterator[tuple[str, str, str]]:
    """Go through all names by which one object means another, the queues of pod groups apart."""
    by_kind = cluster.by_kind
    for name, queue in by_kind["Queue"].items():
        if parent := queue["spec"].get("parentQueue"):
            yield f"queue {name}", "Queue", parent
    for name, group in by_kind["PodGroup"].items():
        yield f"group {name}", "PriorityClass", group["spec"]["priorityClassName"]
        for part in (group["spec"], *group["spec"].get("subGroups", ())):
            if constraint := part.get("topologyConstraint"):
                yield f"group {name}", "Topology", constraint["topology"]
    for name, request in by_kind["BindRequest"].items():
        yield f"bind request {name}", "Pod", request["spec"]["podName"]
    for name, claim in by_kind["ResourceClaim"].items():
        yield f"claim {name}", "DeviceClass", claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"]
    for name, claim in by_kind["PersistentVolumeClaim"].items():
        yield f"claim {name}", "StorageClass", claim["spec"]["storageClassName"]
        if volume := claim["spec"].get("volumeName"):
            yield f"claim {name}", "PersistentVolume", volume
    for pod in by_kind["Pod"].values():
        yield from _references_of_pod(pod)


def _references_of_pod(pod: Object) -> Iterator[tuple[str, str, str]]:
    owner = f"pod {pod['metadata']['name']}"
    if group := pod["metadata"].get("annotations", {}).get("pod-group-name"):
        yield owner, "PodGroup", group
    yield from ((owner, "PersistentVolumeClaim", claim) for claim in _storage_claims(pod))
    for source in pod["spec"].get("resourceClaims", ()):
        if template := source.get("resourceClaimTemplateName"):
            yield owner, "ResourceClaimTemplate", template
    if pod["status"]["phase"] not in {"Succeeded", "Failed"}:
        yield from ((owner, "ResourceClaim", claim) for claim in _device_claims(pod))


def _storage_claims(pod: Object) -> list[str]:
    return [volume["persistentVolumeClaim"]["claimName"] for volume in pod["spec"].get("volumes", ())]


def _device_claims(pod: Object) -> list[str]:
    own = {s["name"]: s["resourceClaimName"] for s in pod["status"].get("resourceClaimStatuses", ())}
    sources = pod["spec"].get("resourceClaims", ())
    return [source.get("resourceClaimName") or own[source["name"]] for source in sources]


def _group_trees(cluster: _Cluster) -> Iterator[str]:
    """Check what the admission webhook for pod groups checks, and that pods are in leaves."""
    leaves: dict[str, set[str]] = {}
    for name, group in cluster.by_kind["PodGroup"].items():
        spec = group["spec"]
        parts = spec.get("subGroups", [])
        known = {part["name"]: part for part in parts}
        parents = {part["parent"] for part in parts if "parent" in part}
        leaves[name] = known.keys() - parents
        for part in (spec, *parts):
            if part.get("minMember") is not None and part.get("minSubGroup") is not None:
                yield f"group {name}: minMember and minSubGroup exclude each other"
        if len(known) != len(parts) or not parents <= known.keys():
            yield f"group {name}: sub-groups have doubled names or missing parents"
        for part in parts:
            if ("minMember" in part) != (part["name"] not in parents):
                yield f"group {name}: sub-group {part['name']} must have minMember if, and only if, it is a leaf"
            if _is_below_itself(part["name"], known):
                yield f"group {name}: sub-group {part['name']} is its own ancestor"
    for pod_name, pod in cluster.by_kind["Pod"].items():
        group_name = pod["metadata"].get("annotations", {}).get("pod-group-name")
        sub_group = pod["metadata"].get("labels", {}).get("kai.scheduler/subgroup-name")
        if group_name and leaves.get(group_name) and sub_group not in leaves[group_name]:
            yield f"pod {pod_name}: {sub_group} is no leaf of {group_name}"


def _is_below_itself(name: str, known: Mapping[str, Object]) -> bool:
    seen = set()
    while name in known and name not in seen:
        seen.add(name)
        name = known[name].get("parent", "")
    return name in seen


def _standing(cluster: _Cluster) -> Iterator[str]:
    """Check that phases, nodes and requests to bind agree."""
    bound = cluster.by_kind["BindRequest"]
    for name, pod in cluster.by_kind["Pod"].items():
        phase, node = pod["status"]["phase"], pod["spec"].get("nodeName")
        if phase == "Running" and not node:
            yield f"pod {name}: runs nowhere"
        if node and node not in cluster.by_kind["Node"]:
            yield f"pod {name}: node {node} does not exist"
        if name in bound and (node or phase != "Pending"):
            yield f"pod {name}: has a request to bind it, but is bound"
        if pod["spec"].get("schedulingGates") and (node or phase != "Pending" or name in bound):
            yield f"pod {name}: has gates, but is past them"


def _requests(pod: Object) -> Counter[str]:
    """Add up what ``pod`` takes of its node, as the kubelet does."""
    spec = pod["spec"]
    firsts = spec.get("initContainers", ())
    sidecars = [each for each in firsts if each.get("restartPolicy") == "Always"]
    total = _sum_of((*spec["containers"], *sidecars))
    before: list[Object] = []
    for first in firsts:
        before += [first] if first in sidecars else []
        peak = _sum_of(before if first in sidecars else (*before, first))
        total |= peak  # the element-wise greater of the two
    for name, quantity in spec.get("overhead", {}).items():
        total[name] += amount(quantity)
    total["pods"] = 1
    for key, count in pod["metadata"].get("annotations", {}).items():
        if key.startswith("nvidia.com/mig-"):
            total[key] += int(count)
    return total


def _sum_of(containers: Iterable[Object]) -> Counter[str]:
    total: Counter[str] = Counter()
    for container in containers:
        for name, quantity in container["resources"].get("requests", {}).items():
            total[name] += amount(quantity)
    return total


def _nodes(cluster: _Cluster) -> Iterator[str]:
    """Check that no node gives more than it has, a shared device counting as a whole one, and no port twice."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    shared: dict[str, set[str]] = defaultdict(set)
    ports: Counter[tuple[str, int, str]] = Counter()
    for pod, node in cluster.active:
        used[node].update(_requests(pod))
        shared[node] |= set(cluster.shared_by(pod))
        for container in pod["spec"]["containers"]:
            ports.update((node, port["hostPort"], port["protocol"]) for port in container.get("ports", ()))
    for node, total in used.items():
        total[GPU] += len(shared[node])
        allocatable = cluster.by_kind["Node"][node]["status"]["allocatable"]
        for resource, taken in total.items():
            if taken > amount(allocatable.get(resource, "0")):
                yield f"node {node}: {float(taken):g} of {resource} taken, {allocatable.get(resource, 0)} there"
    yield from (f"node {node}: port {port} taken twice" for (node, port, _), count in ports.items() if count > 1)


def _shared_devices(cluster: _Cluster) -> Iterator[str]:
    """Check that the pods on a shared device do not need more memory than it has, and that it is on one node."""
    used: dict[str, Fraction] = defaultdict(Fraction)
    homes: dict[str, set[str]] = defaultdict(set)
    for pod, node in cluster.active:
        label = cluster.by_kind["Node"][node]["metadata"]["labels"].get("nvidia.com/gpu.memory", "100")
        memory = int(label) - int(label) % 100
        annotations = pod["metadata"].get("annotations", {})
        wanted = Fraction(annotations.get("gpu-memory", 0)) or Fraction(annotations.get("gpu-fraction", 0)) * memory
        devices = cluster.shared_by(pod)
        if len(devices) != (int(annotations.get("gpu-fraction-num-devices", 1)) if wanted else 0):
            yield f"pod {pod['metadata']['name']}: on {len(devices)} shared devices"
        for device in devices:
            used[device] += Fraction(int(wanted), memory)
            homes[device].add(node)
    yield from (f"device {device}: {float(part):.2f} of it taken" for device, part in used.items() if part > 1)
    yield from (f"device {device}: on several nodes" for device, nodes in homes.items() if len(nodes) > 1)


def _zones(cluster: _Cluster) -> Iterator[str]:
    """Check that recorded placements fit the zones, and that zones together have no more than their node."""
    used: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for pod, node in cluster.active:
        for part in _recorded_zones(cluster, pod):
            for resource, quantity in part["amount"].items():
                used[node][part["zone"], resource] += amount(quantity)
    for node, topology in cluster.by_kind["NodeResourceTopology"].items():
        total: Counter[str] = Counter()
        for zone in topology["zones"]:
            for resource in zone["resources"]:
                total[resource["name"]] += amount(resource["allocatable"])
                if used[node].pop((zone["name"], resource["name"]), 0) > amount(resource["allocatable"]):
                    yield f"node {node}: zone {zone['name']} gives more {resource['name']} than it has"
        allocatable = cluster.by_kind["Node"][node]["status"]["allocatable"]
        for name, there in total.items():
            if there > amount(allocatable.get(name, "0")):
                yield f"node {node}: its zones have more {name} than it has"
    yield from (f"node {node}: no zone {zone} with {name}" for node, left in used.items() for zone, name in left)


def _recorded_zones(cluster: _Cluster, pod: Object) -> list[Object]:
    request = cluster.by_kind["BindRequest"].get(pod["metadata"]["name"])
    if request:
        return request["spec"].get("predictedNUMAZones", [])
    annotations = pod["metadata"].get("annotations", {})
    for when in ("observed", "predicted"):
        if text := annotations.get(f"kai.scheduler/numa-placement-{when}"):
            return json.loads(text)
    return []


def _claimed_devices(cluster: _Cluster) -> Iterator[str]:
    """Check that a device is in one allocation only, exists, and is where the pods that use it are."""
    home = {
        (piece["spec"]["driver"], piece["spec"]["pool"]["name"], device["name"]): piece["spec"]["nodeName"]
        for piece in cluster.by_kind["ResourceSlice"].values()
        for device in piece["spec"]["devices"]
    }
    holders: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for claim, allocation in _allocations(cluster):
        for result in allocation["devices"]["results"]:
            holders[result["driver"], result["pool"], result["device"]].add(claim)
    yield from (f"device {key}: in the allocations of {sorted(who)}" for key, who in holders.items() if len(who) > 1)
    yield from (f"device {key}: does not exist" for key in holders if key not in home)
    where = {claim: home[key] for key, who in holders.items() if key in home for claim in who}
    for pod, node in cluster.active:
        for claim in _device_claims(pod):
            if where.get(claim) != node:
                yield f"pod {pod['metadata']['name']}: on {node}, its devices are on {where.get(claim)}"


def _allocations(cluster: _Cluster) -> Iterator[tuple[str, Object]]:
    for name, claim in cluster.by_kind["ResourceClaim"].items():
        if allocation := claim.get("status", {}).get("allocation"):
            yield name, allocation
    for name, request in cluster.by_kind["BindRequest"].items():
        for part in request["spec"].get("resourceClaimAllocations", ()):
            (claim_name,) = _device_claims(cluster.by_kind["Pod"][name])
            yield claim_name, part["allocation"]


def _volumes(cluster: _Cluster) -> Iterator[str]:
    """Check that claims and volumes mean each other, and that pods reach the volumes they have."""
    claims, volumes = cluster.by_kind["PersistentVolumeClaim"], cluster.by_kind["PersistentVolume"]
    for name, volume in volumes.items():
        claim = claims.get(volume["spec"].get("claimRef", {}).get("name", ""))
        if claim is None or claim["spec"].get("volumeName") != name:
            yield f"volume {name}: its claim means another one"
    for pod, node in cluster.active:
        labels = cluster.by_kind["Node"][node]["metadata"]["labels"]
        for claim_name in _storage_claims(pod):
            volume = volumes.get(claims[claim_name]["spec"].get("volumeName", ""))
            if volume is None:
                yield f"pod {pod['metadata']['name']}: runs without its volume {claim_name}"
            elif not _reaches(volume, labels):
                yield f"pod {pod['metadata']['name']}: cannot reach its volume {claim_name}"


def _reaches(volume: Object, labels: Mapping[str, str]) -> bool:
    affinity = volume["spec"].get("nodeAffinity")
    if not affinity:
        return True
    (term,) = affinity["required"]["nodeSelectorTerms"]
    return all(labels.get(each["key"]) in each["values"] for each in term["matchExpressions"])
