"""Nodes that take no pods or have lost GPUs, and whether a job would start if they were back.

Candidate changes for pods that are blocked by something other than amounts.

These are spread constraints, host ports, volumes and devices. A group without them gets no candidates from here.

A `Family` holds the changes of one field: its steps from the least change to the greatest, or alternatives.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import attrs

from kai.answers.outcomes.node_occupancy import NodeState, recovered, repaired, states_of, uncordoned
from kai.answers.why import pod_changes
from kai.answers.why.changes import Change, Site
from kai.answers.why.facts import Evidence, asks_gpus
from kai.api import names
from kai.api.kubernetes.node import Node
from kai.basics.wording import counted, span_text
from kai.deciding.explain.phrases import listed
from kai.facts.model.axis import GPU

MOST_ALTERNATIVES: Final = 3
CAPPED: Final = 64
"""Most steps of a family; the smallest numbers are left out."""


@attrs.frozen(kw_only=True)
class Family:
    """The changes of one field. Among families with the same topic only the first of the best is suggested."""

    topic: str
    steps: tuple[Callable[[], Change], ...]
    ordered: bool = True
    """Whether each step is a greater change than the one before."""
    instead_of: frozenset[str] = frozenset()
    """Topics that this change combines: it is tried only where none of them alone starts the whole group."""


Maker = Callable[[Site], Iterator[Family]]


def below(amount: int) -> range:
    """Return the numbers from ``amount`` - 1 down to 1, at most CAPPED of them."""
    return range(amount - 1, max(0, amount - 1 - CAPPED), -1)


def above(amount: int, more: int) -> range:
    """Return the ``more`` numbers that follow ``amount``, at most CAPPED of them."""
    return range(amount + 1, amount + 1 + min(more, CAPPED))


def rounder(amount: int) -> range:
    """Return round numbers below ``amount``, the largest first, about CAPPED of them at most."""
    sizes = (digit * 10**zeros for zeros in range(len(str(amount))) for digit in (1, 2, 5))
    step = next(size for size in sizes if size * CAPPED >= amount)
    return range((amount - 1) // step * step, 0, -step)


_COUNTED_OTHERWISE: Final = frozenset(names.GPU_RESOURCES)


def _spreads(site: Site) -> Iterator[Family]:
    """Yield a greater maxSkew, up to all pods in one domain, and then the constraint as a preference."""
    least: dict[str, int] = {}
    for each in pod_changes.demanded_spreads(site):
        least[each.topology_key] = min(least.get(each.topology_key, each.max_skew), each.max_skew)
    for key, skew in sorted(least.items()):
        steps = tuple(partial(pod_changes.spread_within, site, key, more) for more in above(skew, len(site.waiting)))
        yield Family(topic=f"spread over {key}", steps=steps)
        yield Family(topic=f"spread over {key}", steps=(partial(pod_changes.spread_if_possible, site, key),))


def _host_ports(site: Site) -> Iterator[Family]:
    """Yield the removal of host ports; not for pods in the host network, which use the node's ports regardless."""
    if pod_changes.host_ports(site) and not any(pod.spec.host_network for pod in site.waiting):
        yield Family(topic="host ports", steps=(partial(pod_changes.without_host_ports, site),))


def _shared_claims(site: Site) -> Iterator[Family]:
    if pod_changes.claims_for_one_pod(site):
        yield Family(topic="access mode", steps=(partial(pod_changes.shared_claims, site),))


def _attach_limits(site: Site) -> Iterator[Family]:
    """Yield a higher attach limit of each limited driver, up to one more for each volume of the waiting pods."""
    if not any(pod.spec.volumes for pod in site.waiting):
        return
    for driver in sorted({each.name for node in site.objects.csi_nodes for each in node.spec.drivers}):
        if pod_changes.attach_limits(site, driver):
            more = above(0, _volumes(site))
            steps = tuple(partial(pod_changes.attach_limit, site, driver, each) for each in more)
            yield Family(topic=f"attach limit of {driver}", steps=steps)


def _volumes(site: Site) -> int:
    return sum(len(pod.spec.volumes) for pod in site.waiting)


def _devices(site: Site) -> Iterator[Family]:
    """Yield fewer devices of each class, other classes, and requests without selectors."""
    asked = pod_changes.asked_devices(site)
    classes = sorted(each.metadata.name for each in site.objects.device_classes)
    for name, count in sorted(asked.items()):
        lower = below(count) if count else (1,)
        steps = tuple(partial(pod_changes.fewer_devices, site, name, each) for each in lower)
        yield Family(topic=f"count of {name}", steps=steps)
        others = [each for each in classes if each != name][:MOST_ALTERNATIVES]
        choices = tuple(partial(pod_changes.of_class, site, name, each) for each in others)
        yield Family(topic=f"class {name}", steps=choices, ordered=False)
    if any(map(pod_changes.selects, pod_changes.device_claims(site))):
        yield Family(topic="selectors", steps=(partial(pod_changes.of_any_kind, site),))


def _counted(site: Site) -> Iterator[Family]:
    """Yield less of each vendor resource that device plugins or device classes provide."""
    for resource, most in sorted(_asked(site).items()):
        steps = tuple(partial(pod_changes.fewer_of, site, resource, most, each) for each in below(most))
        yield Family(topic=resource, steps=steps)


def _asked(site: Site) -> dict[str, int]:
    """Return the greatest request of a container for each such resource."""
    found: dict[str, int] = {}
    for pod in site.waiting:
        for container in pod.spec.containers:
            for resource, text in container.resources.requests.items():
                if "/" in resource and "/mig-" not in resource and resource not in _COUNTED_OTHERWISE:
                    found[resource] = max(found.get(resource, 0), int(text) if text.isdecimal() else 0)
    return found


OBSTACLES: Final[tuple[Maker, ...]] = (_spreads, _host_ports, _shared_claims, _attach_limits, _devices, _counted)


_MOST: Final = 4
_MOST_STEPS: Final = 8
"""Most nodes that one step brings back."""
CORDONED, NOT_READY, UNHEALTHY = "uncordon", "node ready", "unhealthy GPUs"
NODE_FIELD: Final = "node "
"""Prefix of the field of a change of nodes."""


def unfit(site: Site) -> list[NodeState]:
    """Return the nodes that take no pods or have lost GPUs, those with most idle GPUs first."""
    snapshot, idle = site.cycle.snapshot, site.cycle.report.idle
    known = {node.name: node for node in snapshot.nodes}
    found = states_of(iter(site.objects.nodes), known)
    return sorted(found, key=lambda each: (-int(idle[snapshot.node_rows[each.name], GPU]), each.name))


def unfit_evidence(site: Site) -> Iterator[Evidence]:
    """Yield the nodes that take no pods, with the time since then, and the nodes with lost GPUs."""
    found = unfit(site)
    for closed in dict.fromkeys(each.closed for each in found if each.closed):
        mine = [each for each in found if each.closed == closed]
        texts = [f"{each.name}{_details(each, site.cycle.snapshot.now)}" for each in mine]
        values = {"nodes": [each.name for each in mine], "since": {each.name: each.since for each in mine}}
        yield Evidence(label=closed, text=listed(texts, _MOST), values=values)
    lost = [each for each in found if each.failed] if asks_gpus(site) else []
    if lost:
        texts = [f"{each.name} has {counted(each.failed, 'GPU')} that {_is(each)} not allocatable" for each in lost]
        values = {"nodes": {each.name: each.failed for each in lost}}
        yield Evidence(label="unhealthy", text=listed(texts, _MOST), values=values)


def _is(state: NodeState) -> str:
    return "is" if state.failed == 1 else "are"


def _details(state: NodeState, now: float) -> str:
    """Return since when and why a node takes no pods, where known."""
    parts = [f"for {span_text(now - state.since)}"] if state.since is not None and now >= state.since else []
    parts += [state.why] if state.why else []
    return f" ({', '.join(parts)})" if parts else ""


# --- Candidates ----------------------------------------------------------------------------------------------------


def back_again(site: Site) -> Iterator[Family]:
    """Yield nodes uncordoned, ready again or repaired: one more in each step; then all of these at once."""
    found = unfit(site)
    kinds = {
        CORDONED: ([each for each in found if each.closed == "cordoned"], uncordoned, _uncordon),
        NOT_READY: ([each for each in found if each.closed == "not ready"], recovered, _ready),
        UNHEALTHY: ([each for each in found if each.failed and not each.closed], repaired, _whole),
    }
    for topic, (states, edit, text) in kinds.items():
        steps = (states[:count] for count in range(1, min(len(states), _MOST_STEPS) + 1))
        yield Family(topic=topic, steps=tuple(partial(_with_nodes, site, each, edit, text(each)) for each in steps))
    if sum(bool(states) for states, _, _ in kinds.values()) > 1 or any(" and " in each.closed for each in found):
        step = partial(_with_nodes, site, found, lambda node: repaired(recovered(uncordoned(node))), _all(found))
        yield Family(topic="nodes", steps=(step,), instead_of=frozenset(kinds))


def _uncordon(states: list[NodeState]) -> str:
    return f"uncordon {listed([each.name for each in states], _MOST)}"


def _ready(states: list[NodeState]) -> str:
    return f"{listed([each.name for each in states], _MOST)} ready again"


def _whole(states: list[NodeState]) -> str:
    lost = sum(each.failed for each in states)
    which = "GPU" if lost == 1 else f"{lost} GPUs"
    return f"the unhealthy {which} of {listed([each.name for each in states], _MOST)} back"


def _all(states: list[NodeState]) -> str:
    return f"all of {listed(sorted(each.name for each in states), _MOST)} back"


def _with_nodes(site: Site, states: list[NodeState], edit: Callable[[Node], Node], text: str) -> Change:
    """Return a change of the chosen nodes."""
    chosen = {each.name for each in states}
    nodes = tuple(edit(node) if node.metadata.name in chosen else node for node in site.objects.nodes)
    return Change(
        field=f"{NODE_FIELD}{listed(sorted(chosen), _MOST)}",
        old=listed(list(dict.fromkeys(each.closed or UNHEALTHY for each in states))),
        new="",
        text=text,
        objects=attrs.evolve(site.objects, nodes=nodes),
    )
