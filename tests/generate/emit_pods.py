"""Write pods: what they ask for, where they may go, and where they stand."""

import json
from collections.abc import Iterable
from datetime import timedelta

from tests.generate.draft import GPU, Manifest, Pod, stamp
from tests.generate.writing import cpu_and_memory, kubernetes_object, namespaced, template_name, zone_amounts

_ON_NODE = frozenset({"running", "releasing", "stuck", "bound", "succeeded", "failed"})
_PHASES = {
    "running": "Running",
    "releasing": "Running",
    "stuck": "Running",
    "succeeded": "Succeeded",
    "failed": "Failed",
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def emit_pod(pod: Pod) -> Manifest:
    """Write ``pod``."""
    metadata = namespaced(pod.name, labels=_labels(pod), annotations=_annotations(pod), creationTimestamp=pod.created)
    if pod.state in {"releasing", "stuck"}:
        metadata["deletionTimestamp"] = stamp(timedelta(minutes=10 if pod.state == "stuck" else 0))
    spec = {"schedulerName": pod.scheduler, **_containers(pod), **_placement_rules(pod), **_extras(pod)}
    if pod.node and pod.state in _ON_NODE:
        spec["nodeName"] = pod.node.name
    status: Manifest = {"phase": _PHASES.get(pod.state, "Pending"), "qosClass": _quality(pod)}
    if pod.nominated:
        status["nominatedNodeName"] = pod.nominated
    if own := [claim.name for claim in pod.claims if claim.owner is pod]:
        status["resourceClaimStatuses"] = [{"name": "devices", "resourceClaimName": name} for name in own]
    return kubernetes_object("v1", "Pod", metadata, spec=spec, status=status)


def _labels(pod: Pod) -> dict[str, str]:
    labels = dict(pod.labels)
    if pod.sub_group:
        labels["kai.scheduler/subgroup-name"] = pod.sub_group
    if pod.group:
        labels["kai.scheduler/queue"] = pod.group.queue
    if pod.shared and pod.state in _ON_NODE:
        labels["runai-gpu-group"] = pod.shared[0]
        labels |= {f"runai-gpu-group/{name}": name for name in pod.shared[1:]}
    return labels


def _annotations(pod: Pod) -> dict[str, str]:
    demand = pod.demand
    annotations = {"pod-group-name": pod.group.name} if pod.group else {}
    if demand.percent:
        annotations["gpu-fraction"] = f"{demand.percent / 100:g}"
    if demand.gpu_memory:
        annotations["gpu-memory"] = str(demand.gpu_memory)
    if demand.shares_gpu and demand.devices > 1:
        annotations["gpu-fraction-num-devices"] = str(demand.devices)
    if demand.legacy_mig:
        annotations |= {profile: str(count) for profile, count in demand.mig}
    if pod.group and pod.state in _ON_NODE:
        annotations["received-resource-type"] = received_type(pod)
        if pod.zones and pod.zones_recorded:
            amounts = json.dumps(zone_amounts(pod), separators=(",", ":"))
            annotations[f"kai.scheduler/numa-placement-{pod.zones_recorded}"] = amounts
    return annotations


def received_type(pod: Pod) -> str:
    """Say in which form ``pod`` got its GPUs."""
    if pod.demand.legacy_mig:
        return "MigInstance"
    return "Fraction" if pod.demand.shares_gpu else "Regular"


def _containers(pod: Pod) -> Manifest:
    """Write the containers; the first one asks for the GPUs, the claims and the ports."""
    demand = pod.demand
    requests = cpu_and_memory((demand.cpu, demand.memory))
    limits = dict(requests) if demand.guaranteed else {}
    devices = {GPU: demand.gpus} if demand.gpus else {}
    devices |= {} if demand.legacy_mig else dict(demand.mig)
    for name, count in devices.items():
        requests[name] = limits[name] = str(count)
    resources: Manifest = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    if pod.claims:
        resources["claims"] = [{"name": "devices"}]
    main: Manifest = {"name": "main", "image": "registry.example/workload:1", "resources": resources}
    if pod.rules.ports:
        main["ports"] = [{"containerPort": port, "hostPort": port, "protocol": name} for port, name in pod.rules.ports]
    containers = [main, *([_container("second", demand.second)] if demand.second else [])]
    first = [{**_container("sidecar", demand.sidecar), "restartPolicy": "Always"}] if demand.sidecar else []
    first += [_container("initial", demand.initial)] if demand.initial else []
    return {"containers": containers, **({"initContainers": first} if first else {})}


def _container(name: str, amounts: tuple[int, int] | None) -> Manifest:
    return {"name": name, "image": "registry.example/tool:1", "resources": {"requests": cpu_and_memory(amounts)}}


def _quality(pod: Pod) -> str:
    demand = pod.demand
    if demand.guaranteed:
        return "Guaranteed"
    asks = demand.cpu or demand.memory or demand.second or demand.sidecar or demand.initial
    return "Burstable" if asks else "BestEffort"


def _extras(pod: Pod) -> Manifest:
    """Write what only some pods have: overhead, claims, volumes, gates."""
    spec: Manifest = {}
    if pod.demand.overhead:
        spec["overhead"] = cpu_and_memory(pod.demand.overhead)
    if pod.claims:
        claim = pod.claims[0]
        source = {"resourceClaimTemplateName": template_name(pod)} if claim.owner else {"resourceClaimName": claim.name}
        spec["resourceClaims"] = [{"name": "devices", **source}]
    if pod.volumes:
        spec["volumes"] = [
            {"name": f"volume-{index}", "persistentVolumeClaim": {"claimName": volume.claim}}
            for index, volume in enumerate(pod.volumes)
        ]
    if pod.state == "gated":
        spec["schedulingGates"] = [{"name": "example.com/wait"}]
    return spec


def _placement_rules(pod: Pod) -> Manifest:
    rules, spec = pod.rules, Manifest()
    if rules.selector:
        spec["nodeSelector"] = dict(rules.selector)
    if rules.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in rules.tolerations]
    node: Manifest = {}
    if rules.terms:
        node[_REQUIRED] = {"nodeSelectorTerms": [_term(term) for term in rules.terms]}
    if rules.preferred:
        node[_PREFERRED] = [{"weight": 10, "preference": _term(rules.preferred)}]
    near: Manifest = {_REQUIRED: [_companions(rules.near)]} if rules.near else {}
    if rules.near_softly:
        near[_PREFERRED] = [{"weight": 50, "podAffinityTerm": _companions(rules.near_softly)}]
    apart = {_REQUIRED: [_companions(rules.apart)]} if rules.apart else {}
    kinds = (("nodeAffinity", node), ("podAffinity", near), ("podAntiAffinity", apart))
    if affinity := {kind: value for kind, value in kinds if value}:
        spec["affinity"] = affinity
    return spec


def _term(term: Iterable[tuple[str, str, tuple[str, ...]]]) -> Manifest:
    expressions = [
        {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        for key, operator, values in term
    ]
    return {"matchExpressions": expressions}


def _companions(companion: tuple[str, str]) -> Manifest:
    app, key = companion
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
