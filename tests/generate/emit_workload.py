"""Write the workload: pod groups and pods, requests to bind them, claims of devices and of storage."""

from collections.abc import Iterator

from tests.generate.draft import GPU_DRIVER, Claim, ClaimShape, Draft, Group, Manifest, Pod, SubGroup, Volume
from tests.generate.emit_pods import emit_pod
from tests.generate.writing import (
    allocation_of,
    kubernetes_object,
    namespaced,
    pod_reference,
    template_name,
    zone_amounts,
)

_DEVICES = "resource.k8s.io/v1"


def emit_workload(draft: Draft) -> Iterator[Manifest]:
    """Write groups with their pods and everything that belongs to them, then foreign pods."""
    for group in draft.groups:
        yield _group(group)
        for pod in group.pods:
            yield emit_pod(pod)
            if pod.state == "binding":
                yield _bind_request(pod)
    yield from (emit_pod(pod) for pod in draft.foreign)
    yield from _templates(draft)
    yield from (_claim(claim) for claim in draft.claims)
    for volume in draft.volumes:
        yield from _volume(volume)


def _group(group: Group) -> Manifest:
    spec: Manifest = {"queue": group.queue, "priorityClassName": group.priority_class, **group.fields}
    if group.sub_groups:
        spec["subGroups"] = [_sub_group(sub_group) for sub_group in group.sub_groups]
        if group.min_sub_group is not None:
            spec["minSubGroup"] = group.min_sub_group
    elif group.min_member is not None:
        spec["minMember"] = group.min_member
    if group.constraint:
        spec["topologyConstraint"] = group.constraint
    metadata = namespaced(group.name, creationTimestamp=group.created, annotations=group.annotations)
    return kubernetes_object("scheduling.run.ai/v2alpha2", "PodGroup", metadata, spec=spec)


def _sub_group(sub_group: SubGroup) -> Manifest:
    fields = {
        "name": sub_group.name,
        "parent": sub_group.parent or None,
        "minMember": sub_group.min_member,
        "minSubGroup": sub_group.min_sub_group,
        "topologyConstraint": sub_group.constraint,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _bind_request(pod: Pod) -> Manifest:
    demand, node = pod.demand, pod.node
    assert node is not None, "a pod that is being bound has a node"
    percent = -(-100 * demand.gpu_memory // node.gpu_memory) if demand.gpu_memory else demand.percent or 100
    count = demand.devices if demand.shares_gpu else demand.gpus
    spec: Manifest = {
        "podName": pod.name,
        "selectedNode": node.name,
        "receivedResourceType": "Fraction" if demand.shares_gpu else "Regular",
        "receivedGPU": {"count": count, "portion": f"{percent / 100:.2f}"},
        "backoffLimit": 3,
    }
    if pod.shared:
        spec["selectedGPUGroups"] = pod.shared
    if pod.zones:
        spec["predictedNUMAZones"] = zone_amounts(pod)
    if pod.claims:
        spec["resourceClaimAllocations"] = [{"name": "devices", "allocation": allocation_of(pod.claims[0])}]
    status: Manifest = {"phase": "Pending"}
    if pod.bind_failed_once:
        status = {"phase": "Failed", "failedAttempts": 1, "reason": "the node did not answer"}
    metadata = namespaced(pod.name, labels={"selected-node": node.name}, ownerReferences=[pod_reference(pod)])
    metadata["uid"] = f"bind-{pod.name}"
    return kubernetes_object("scheduling.run.ai/v1alpha2", "BindRequest", metadata, spec=spec, status=status)


def _claim_spec(shape: ClaimShape) -> Manifest:
    wanted: Manifest = {"deviceClassName": shape.device_class}
    wanted |= {"allocationMode": "All"} if shape.every else {"allocationMode": "ExactCount", "count": shape.count}
    expressions = []
    if shape.model:
        expressions.append(f'device.attributes["{GPU_DRIVER}"].model == "{shape.model}"')
    if shape.least_memory_gi:
        capacity = f'device.capacity["{GPU_DRIVER}"].memory'
        expressions.append(f'{capacity}.compareTo(quantity("{shape.least_memory_gi}Gi")) >= 0')
    if expressions:
        wanted["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    return {"devices": {"requests": [{"name": "devices", "exactly": wanted}]}}


def _templates(draft: Draft) -> Iterator[Manifest]:
    written: dict[str, ClaimShape] = {}
    for claim in draft.claims:
        if claim.owner is not None:
            written.setdefault(template_name(claim.owner), claim.shape)
    for name, shape in written.items():
        spec = {"spec": _claim_spec(shape)}
        yield kubernetes_object(_DEVICES, "ResourceClaimTemplate", namespaced(name), spec=spec)


def _claim(claim: Claim) -> Manifest:
    """Write ``claim``; it has an allocation once a pod that uses it is past its binding."""
    owner = [pod_reference(claim.owner)] if claim.owner else []
    labels = {"kai.scheduler/queue": claim.queue} if claim.queue else {}
    metadata = namespaced(claim.name, ownerReferences=owner, labels=labels)
    users = [pod for pod in claim.users if pod.state != "binding"]
    status: Manifest = {}
    if users:
        consumers = [{"resource": "pods", "name": pod.name, "uid": pod.name} for pod in users]
        status = {"allocation": allocation_of(claim), "reservedFor": consumers}
    return kubernetes_object(_DEVICES, "ResourceClaim", metadata, spec=_claim_spec(claim.shape), status=status)


def _volume(volume: Volume) -> Iterator[Manifest]:
    """Write a claim of storage, and the volume that it is bound to."""
    size, modes = {"storage": f"{volume.size_gi}Gi"}, ["ReadWriteOnce" if volume.owner else "ReadWriteMany"]
    owner = [pod_reference(volume.owner)] if volume.owner else []
    spec: Manifest = {
        "storageClassName": volume.storage_class,
        "accessModes": modes,
        "volumeMode": "Filesystem",
        "resources": {"requests": size},
    }
    status: Manifest = {"phase": "Pending"}
    annotations: dict[str, str] = {}
    if volume.bound:
        spec["volumeName"] = f"pv-{volume.claim}"
        status = {"phase": "Bound", "capacity": size}
        annotations = {"pv.kubernetes.io/bind-completed": "yes"}
        yield _persistent_volume(volume, size, modes)
    metadata = namespaced(volume.claim, ownerReferences=owner, annotations=annotations)
    yield kubernetes_object("v1", "PersistentVolumeClaim", metadata, spec=spec, status=status)


def _persistent_volume(volume: Volume, size: dict[str, str], modes: list[str]) -> Manifest:
    name = f"pv-{volume.claim}"
    spec: Manifest = {
        "capacity": size,
        "accessModes": modes,
        "storageClassName": volume.storage_class,
        "volumeMode": "Filesystem",
        "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **namespaced(volume.claim)},
        "csi": {"driver": "csi.example.com", "volumeHandle": name},
    }
    if volume.reach:
        terms = [{"key": key, "operator": "In", "values": [value]} for key, value in volume.reach.items()]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
    metadata: Manifest = {"name": name, "uid": name}
    return kubernetes_object("v1", "PersistentVolume", metadata, spec=spec, status={"phase": "Bound"})
