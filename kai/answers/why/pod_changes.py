"""Changes of what waiting pods require of nodes and of nearby pods."""

from collections.abc import Callable

import attrs

from kai.answers.why.changes import Change, Site, with_spec
from kai.api.cluster_objects import ClusterObjects
from kai.api.kubernetes.node import Affinity, Taint, Toleration, TopologySpreadConstraint
from kai.api.kubernetes.pod import Container, ContainerPort, Pod, PodSpec
from kai.basics.wording import counted
from kai.deciding.explain.phrases import listed

_DEMANDED = "DoNotSchedule"
_WISHED = "ScheduleAnyway"
_AFFINITIES = {
    "node_affinity": ("nodeAffinity", "node affinity"),
    "pod_affinity": ("podAffinity", "pod affinity"),
    "pod_anti_affinity": ("podAntiAffinity", "pod anti-affinity"),
}


def tolerating(site: Site, taint: Taint) -> Change:
    """Let every pod tolerate a taint."""
    more = Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
    name = f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
    return Change(
        field="tolerations",
        old="",
        new=name,
        text=f"toleration for {name}",
        objects=with_spec(site, lambda pod: attrs.evolve(pod.spec, tolerations=(*pod.spec.tolerations, more))),
    )


def selecting(site: Site, key: str, value: str | None) -> Change:
    """Let every pod select nodes with another value of a label, or with any value (None)."""
    old = site.waiting[0].spec.node_selector.get(key, "")

    def selector(pod: Pod) -> dict[str, str]:
        rest = {each: found for each, found in pod.spec.node_selector.items() if each != key}
        return rest if value is None or key not in pod.spec.node_selector else {**rest, key: value}

    return Change(
        field=f"nodeSelector[{key}]",
        old=old,
        new=value or "",
        text=f"no selector for {key}" if value is None else f"selector {key} {old} -> {value}",
        objects=with_spec(site, lambda pod: attrs.evolve(pod.spec, node_selector=selector(pod))),
    )


def without_affinity(site: Site, kind: str) -> Change:
    """Drop the required affinity of every pod to nodes or pods: ``kind`` is a field of Affinity."""
    field, title = _AFFINITIES[kind]

    def affinity(pod: Pod) -> Affinity | None:
        found = pod.spec.affinity
        part = getattr(found, kind) if found else None
        if found is None or part is None:
            return found
        return attrs.evolve(found, **{kind: attrs.evolve(part, required=None if kind == "node_affinity" else ())})

    return Change(
        field=f"affinity.{field}",
        old="required",
        new="",
        text=f"no required {title}",
        objects=with_spec(site, lambda pod: attrs.evolve(pod.spec, affinity=affinity(pod))),
    )


def ungated(site: Site) -> Change:
    """Remove the scheduling gates of every pod."""
    gates = sorted({gate.name for pod in site.waiting for gate in pod.spec.scheduling_gates})
    return Change(
        field="schedulingGates",
        old=", ".join(gates),
        new="",
        text=f"open the gates {', '.join(gates)}" if len(gates) > 1 else f"open the gate {''.join(gates)}",
        objects=with_spec(site, lambda pod: attrs.evolve(pod.spec, scheduling_gates=())),
    )


def spread_within(site: Site, key: str, skew: int) -> Change:
    """Raise maxSkew over a label to ``skew`` where it is less."""
    old = min(each.max_skew for each in demanded_spreads(site) if each.topology_key == key)
    return Change(
        field=f"topologySpreadConstraints[{key}].maxSkew",
        old=str(old),
        new=str(skew),
        text=f"maxSkew of {key} {old} -> {skew}",
        objects=_with_spreads(site, key, lambda each: attrs.evolve(each, max_skew=max(each.max_skew, skew))),
    )


def spread_if_possible(site: Site, key: str) -> Change:
    """Make the required spread over a label a preference."""
    return Change(
        field=f"topologySpreadConstraints[{key}].whenUnsatisfiable",
        old=_DEMANDED,
        new=_WISHED,
        text=f"spread over {key} preferred, not required",
        objects=_with_spreads(site, key, lambda each: attrs.evolve(each, when_unsatisfiable=_WISHED)),
    )


def demanded_spreads(site: Site) -> list[TopologySpreadConstraint]:
    """Return the required spread constraints of the waiting pods."""
    found = dict.fromkeys(each for pod in site.waiting for each in pod.spec.topology_spread_constraints)
    return [each for each in found if each.when_unsatisfiable == _DEMANDED]


def _with_spreads(
    site: Site, key: str, edit: Callable[[TopologySpreadConstraint], TopologySpreadConstraint]
) -> ClusterObjects:
    def spec(pod: Pod) -> PodSpec:
        changed = tuple(
            edit(each) if each.topology_key == key and each.when_unsatisfiable == _DEMANDED else each
            for each in pod.spec.topology_spread_constraints
        )
        return attrs.evolve(pod.spec, topology_spread_constraints=changed)

    return with_spec(site, spec)


def without_host_ports(site: Site) -> Change:
    """Remove the host ports from the containers of every pod."""
    ports = [str(port) for port in host_ports(site)]

    def closed(container: Container) -> Container:
        return attrs.evolve(container, ports=tuple(map(_of_pod_alone, container.ports)))

    def spec(pod: Pod) -> PodSpec:
        return attrs.evolve(
            pod.spec,
            containers=tuple(map(closed, pod.spec.containers)),
            init_containers=tuple(map(closed, pod.spec.init_containers)),
        )

    return Change(
        field="hostPort",
        old=", ".join(ports),
        new="",
        text=f"no {counted(len(ports), 'host port').partition(' ')[2]} {listed(ports)}",
        objects=with_spec(site, spec),
    )


def host_ports(site: Site) -> list[int]:
    """Return the host ports of the waiting pods, each once."""
    containers = (each for pod in site.waiting for each in (*pod.spec.containers, *pod.spec.init_containers))
    return sorted({port.host_port for each in containers for port in each.ports if port.host_port})


def _of_pod_alone(port: ContainerPort) -> ContainerPort:
    return attrs.evolve(port, host_port=0, host_ip="")
