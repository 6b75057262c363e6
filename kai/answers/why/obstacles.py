"""Evidence for obstacles other than amounts: labels, volumes, host ports, devices and topologies, each by its name."""

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence

from kai.answers.why.changes import Site
from kai.answers.why.facts import Evidence, shapes_of
from kai.api.kinds import key_of
from kai.api.kubernetes.node import NodeSelectorRequirement
from kai.api.kubernetes.pod import ENDED, Pod, claim_behind
from kai.api.kubernetes.storage import PersistentVolumeClaim
from kai.basics.wording import counted
from kai.deciding.explain.phrases import alternatives, listed
from kai.facts.model.claim import Claim, ClaimCatalog, DeviceRequest

_MOST = 4
_IMMEDIATE = ("", "Immediate")


def topologies(site: Site) -> Iterator[Evidence]:
    """Yield the levels of the requested topology, or the existing topologies if it does not exist."""
    spec = site.source.spec
    constraints = [spec.topology_constraint, *(each.topology_constraint for each in spec.sub_groups)]
    wanted = next((each.topology for each in constraints if each is not None and each.topology), "")
    found = {each.metadata.name: [level.node_label for level in each.spec.levels] for each in site.objects.topologies}
    if wanted in found:
        levels = found[wanted]
        yield Evidence(label="levels", text=f"{wanted} has {listed(levels)}", values={"levels": levels})
        return
    near = difflib.get_close_matches(wanted, found, n=1)
    known = [*near, *(name for name in sorted(found) if name not in near)]
    text = f"there {'is' if len(known) == 1 else 'are'} {listed(known)}" if known else "there is none"
    yield Evidence(label="topologies", text=text, values={"topologies": known})


def foreign_nodes(site: Site) -> Iterator[Evidence]:
    """Yield the nodes that are left out of the snapshot: other node pools, and nodes without a worker label."""
    # Intake drops such nodes, so no objection of a node mentions them.
    names = sorted({each.metadata.name for each in site.objects.nodes} - {n.name for n in site.cycle.snapshot.nodes})
    if names:
        text = f"{listed(names, _MOST)}: not of the node pool that is served, or without a worker label"
        yield Evidence(label="left out", text=text, values={"nodes": names})


def affinities(site: Site) -> Iterator[Evidence]:
    """Yield for each label of a required node affinity how many nodes have it, and which values the others have."""
    asked: dict[NodeSelectorRequirement, None] = {}
    for pod in site.waiting:
        affinity = None if pod.spec.affinity is None else pod.spec.affinity.node_affinity
        required = None if affinity is None else affinity.required
        for term in () if required is None else required.node_selector_terms:
            # Other operators, such as NotIn and Exists, have no value that could be misspelt or be on too few nodes.
            asked |= dict.fromkeys(each for each in term.match_expressions if each.operator == "In")
    nodes = site.objects.nodes
    for each in asked:
        values = Counter(node.metadata.labels[each.key] for node in nodes if each.key in node.metadata.labels)
        on = sum(values[value] for value in each.values)
        others = sorted(set(values) - set(each.values))
        have = f"; others have {alternatives(others, _MOST)}" if others else "" if on else "; no node has this label"
        text = f"{each.key} in {alternatives(each.values, _MOST)} is on {on or 'none'} of {counted(len(nodes), 'node')}"
        numbers = {"key": each.key, "values": list(each.values), "nodesWith": on, "others": others}
        yield Evidence(label="affinity", text=text + have, values=numbers)


def claims(site: Site) -> Iterator[Evidence]:
    """Yield from where the claimed volumes can be reached, or why the claims are not bound."""
    known = {key_of(each): each for each in site.objects.persistent_volume_claims}
    for namespace, name in sorted({each for pod in site.waiting for each in _names(pod)}):
        claim = known.get((namespace, name))
        text = f"claim {name} does not exist in namespace {namespace}" if claim is None else _place(site, claim)
        if text:
            yield Evidence(label="volume", text=text, values={"claim": f"{namespace}/{name}"})


def _names(pod: Pod) -> Iterator[tuple[str, str]]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield pod.metadata.namespace, volume.persistent_volume_claim.claim_name


def _place(site: Site, claim: PersistentVolumeClaim) -> str:
    """Return from where the volume of a claim can be reached, or why it has none; "" if neither is an obstacle."""
    name, volume = claim.metadata.name, claim.spec.volume_name
    if not volume:
        # Only an immediate class is an obstacle: with WaitForFirstConsumer
        # the claim stays unbound until a node is chosen.
        wanted = claim.spec.storage_class_name
        found = next((each for each in site.objects.storage_classes if each.metadata.name == wanted), None)
        if found is not None and found.volume_binding_mode in _IMMEDIATE:
            return f"claim {name} is not bound yet; {found.provisioner} has to provide a volume of class {wanted} first"
        return ""
    stored = next((each for each in site.objects.persistent_volumes if each.metadata.name == volume), None)
    if stored is None:
        return f"claim {name} is bound to volume {volume}, which does not exist"
    affinity = stored.spec.node_affinity
    terms = () if affinity is None or affinity.required is None else affinity.required.node_selector_terms
    if not terms:
        return ""
    where = " or ".join(" and ".join(_condition(each) for each in term.match_expressions) for term in terms)
    return f"claim {name} is bound to volume {volume}, which nodes reach where {where}"


def _condition(each: NodeSelectorRequirement) -> str:
    if each.operator == "In":
        return f"{each.key} is {alternatives(each.values, _MOST)}"
    return " ".join([each.key, each.operator, *each.values])


def config_maps(site: Site) -> Iterator[Evidence]:
    """Yield existing config maps whose names resemble those of missing ones that the pods need."""
    snapshot = site.cycle.snapshot
    if not snapshot.catalog.config_maps_known:
        return
    shapes = [snapshot.shapes[shape] for shape in sorted(shapes_of(site))]
    for namespace, name in sorted({(each.namespace, name) for each in shapes for name in each.constraints.config_maps}):
        if (namespace, name) not in snapshot.catalog.config_maps:
            there = [other for space, other in snapshot.catalog.config_maps if space == namespace]
            near = difflib.get_close_matches(name, sorted(there), n=_MOST)
            what = f"has {alternatives(near)}" if near else "has none of a name like it"
            text = f"{name} does not exist; namespace {namespace} {what}"
            yield Evidence(label="config map", text=text, values={"configMap": f"{namespace}/{name}", "near": near})


def ports(site: Site) -> Iterator[Evidence]:
    """Yield the pods that occupy the requested host ports."""
    wanted = {port for pod in site.waiting for port in _host_ports(pod)}
    users: dict[int, list[str]] = {}
    if wanted:
        for pod in site.objects.pods:
            # All pods count: the kubelet gives a host port of a node once, to a pod of any scheduler.
            if pod.spec.node_name and pod.status.phase not in ENDED:
                for port in wanted.intersection(_host_ports(pod)):
                    users.setdefault(port, []).append(f"{pod.metadata.name} on {pod.spec.node_name}")
    for port, names in sorted(users.items()):
        yield Evidence(label="ports", text=f"{port} is used by {listed(sorted(names), _MOST)}", values={"port": port})


def _host_ports(pod: Pod) -> Iterator[int]:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    yield from (port.host_port for each in containers for port in each.ports if port.host_port)


def devices(site: Site) -> Iterator[Evidence]:
    """Yield what the requested device classes select, and the number of devices of each driver."""
    catalog = site.cycle.snapshot.catalog.claims
    asking: dict[tuple[str, str], list[str]] = {}
    for claim in _device_claims(site, catalog):
        for request in (each for one in claim.requests for each in one.alternatives or (one,)):
            asking.setdefault((_selection(request, catalog), request.device_class), []).append(claim.name)
    for (selection, device_class), names in asking.items():
        text = f"claim {listed(names, _MOST)}: {selection}"
        yield Evidence(label="devices", text=text, values={"class": device_class})
    templates = sorted(key_of(each) for each in site.objects.resource_claim_templates)
    for key in sorted(_templates(site).difference(templates)):
        there = listed([name for namespace, name in templates if namespace == key[0]])
        text = f"there is no ResourceClaimTemplate {'/'.join(key)}" + (f"; there is {there}" if there else "")
        yield Evidence(label="devices", text=text, values={"template": "/".join(key)})


def _templates(site: Site) -> set[tuple[str, str]]:
    """Return the claim templates from which no claim has been made yet."""
    return {
        (pod.metadata.namespace, each.resource_claim_template_name)
        for pod in site.waiting
        for each in pod.spec.resource_claims
        if each.resource_claim_template_name and claim_behind(pod, each) is None
    }


def _device_claims(site: Site, catalog: ClaimCatalog) -> Sequence[Claim]:
    """Return the device claims of the waiting pods that are not allocated."""
    behind = (
        (pod.metadata.namespace, claim_behind(pod, each)) for pod in site.waiting for each in pod.spec.resource_claims
    )
    names = {(namespace, name) for namespace, name in behind if name}
    found = [catalog.claims[name] for name in sorted(names) if name in catalog.claims]
    # An allocated claim has its devices; its pods wait for a node that reaches them, which is another obstacle.
    return [claim for claim in found if claim.allocation is None]


def _selection(request: DeviceRequest, catalog: ClaimCatalog) -> str:
    known = catalog.classes.get(request.device_class)
    if known is None:
        names = sorted(catalog.classes)
        return f"there is no device class {request.device_class}" + (f"; there is {listed(names)}" if names else "")
    drivers = Counter(each.driver for each in catalog.slices for _ in each.devices)
    there = listed([f"{counted(count, 'device')} of driver {driver}" for driver, count in sorted(drivers.items())])
    selects = " and ".join((*known.selectors, *request.selectors)) or "each device"
    asked = "all" if request.all_devices else str(request.count)
    return f"{asked} of class {request.device_class}, which selects {selects}; offered: {there or 'no device'}"


__all__ = ["affinities", "claims", "config_maps", "devices", "foreign_nodes", "ports", "topologies"]
