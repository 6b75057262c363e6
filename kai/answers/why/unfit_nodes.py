"""Nodes that take no pods or have lost GPUs, and whether a job would start if they were back."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import attrs

from kai.answers.outcomes.node_states import NodeState, recovered, repaired, states_of, uncordoned
from kai.answers.why.changes import Change, Site
from kai.answers.why.facts import Evidence, asks_gpus
from kai.answers.why.obstacle_candidates import Family
from kai.api.kubernetes.node import Node
from kai.basics.wording import counted, span_text
from kai.deciding.explain.phrases import listed
from kai.facts.model.axis import GPU

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
