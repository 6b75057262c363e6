"""Settle a group: which of its pods run when the cycle begins, where, and in what state the others are."""

from collections.abc import Iterable
from datetime import timedelta

from tests.generate.booking import book, unbook
from tests.generate.draft import HOST_LABEL, ZONE_LABEL, Draft, Group, Node, Pod, stamp

_STARTS = (timedelta(seconds=20), timedelta(minutes=1), timedelta(minutes=30), timedelta(hours=5))


def settle(draft: Draft, group: Group) -> None:
    """Let all, some or none of the pods of ``group`` run, and give every pod its state."""
    if draft.sometimes("running", 0.75) and _start(draft, group):
        _age(draft, group)
    _stop_at_gates(draft, group)
    _nominate(draft, group)
    _bind_volumes(draft, group)
    for pod in group.pods:
        pod.zones_recorded = draft.random.choice(("observed", "observed", "predicted", ""))
        pod.bind_failed_once = draft.random.random() < 0.3


def place_foreign(draft: Draft, pod: Pod) -> None:
    """Put a pod of another scheduler on a node where it fits; it waits if there is none."""
    if draft.random.random() < 0.8 and _place(draft, pod, draft.nodes):
        pod.state = "running"


def _start(draft: Draft, group: Group) -> bool:
    """Put the pods that are to run on nodes; say whether they do. A gang that does not fit stays off."""
    wanted = [pod for pods in _by_leaf(group) for pod in _to_run(draft, group, pods)]
    domains: dict[str, list[Node]] = {}
    for pod in wanted:
        candidates = _candidates(draft, group, pod, domains)
        if not _place(draft, pod, candidates):
            for placed in wanted:
                unbook(placed)
                placed.state = "pending"
            return False
        pod.state = "running"
    if wanted:
        age = draft.random.choice(_STARTS)
        group.annotations["kai.scheduler/last-start-timestamp"] = stamp(age)
    return bool(wanted)


def _by_leaf(group: Group) -> Iterable[list[Pod]]:
    if not group.sub_groups:
        return [group.pods]
    return [[pod for pod in group.pods if pod.sub_group == leaf.name] for leaf in group.leaves()]


def _to_run(draft: Draft, group: Group, pods: list[Pod]) -> list[Pod]:
    """Choose how many of a leaf's pods run: its minimum at least, the others by chance."""
    least = group.min_member if not group.sub_groups else None
    for leaf in group.leaves():
        if pods and leaf.name == pods[0].sub_group:
            least = leaf.min_member
    least = 1 if least is None else least
    return pods[: draft.random.randint(min(least, len(pods)), len(pods))]


def _candidates(draft: Draft, group: Group, pod: Pod, domains: dict[str, list[Node]]) -> list[Node]:
    """Find the nodes that the required topology levels of ``pod`` leave; every level's domain is chosen once."""
    by_name = {sub_group.name: sub_group for sub_group in group.sub_groups}
    chain = []
    name = pod.sub_group
    while name in by_name:
        chain.append(by_name[name])
        name = by_name[name].parent
    nodes = draft.nodes
    for key, constraint in [("", group.constraint), *((part.name, part.constraint) for part in reversed(chain))]:
        level = (constraint or {}).get("requiredTopologyLevel", "")
        if level:
            if key not in domains:
                domains[key] = _domain(draft, nodes, level)
            nodes = domains[key]
    return nodes


def _domain(draft: Draft, nodes: list[Node], level: str) -> list[Node]:
    values = sorted({node.labels[level] for node in nodes if all(label in node.labels for label in draft.levels)})
    if not values:
        return []
    value = draft.random.choice(values)
    return [node for node in nodes if node.labels.get(level) == value]


def _place(draft: Draft, pod: Pod, nodes: list[Node]) -> bool:
    """Put ``pod`` on one of ``nodes``, tried in random order."""
    return any(book(draft, pod, node) for node in draft.random.sample(nodes, len(nodes)))


def _age(draft: Draft, group: Group) -> None:
    """Let time pass over running pods: some terminate, some are gone, some have finished, some are only bound."""
    random = draft.random
    running = [pod for pod in group.pods if pod.state == "running"]
    if draft.sometimes("bind-requests", 0.3):
        _undo_start(group, running, "binding")
    elif draft.sometimes("bind-requests", 0.1):
        _undo_start(group, running, "bound")
    elif draft.sometimes("stale", 0.4) and len(running) > 1:
        _lose(draft, group, running)
    elif draft.sometimes("releasing", 0.35):
        for pod in running if random.random() < 0.5 else running[: random.randint(1, len(running))]:
            pod.state = "releasing"
    elif draft.sometimes("stuck", 0.3):
        for pod in running[: random.randint(1, len(running))]:
            pod.state = "stuck"
    elif draft.sometimes("finished", 0.3):
        pod = running[0]
        _finish(draft, pod)


def _undo_start(group: Group, running: list[Pod], state: str) -> None:
    for pod in running:
        pod.state = state
    group.annotations.pop("kai.scheduler/last-start-timestamp", None)


def _lose(draft: Draft, group: Group, running: list[Pod]) -> None:
    """Take away pods of a gang that runs: some are gone, some wait again; the rest is stale if too few are left."""
    random = draft.random
    for pod in running[random.randint(1, len(running) - 1) :]:
        unbook(pod)
        pod.state = "pending"
        if random.random() < 0.5:
            _forget(draft, group, pod)
    if random.random() < 0.6:
        group.annotations["kai.scheduler/stale-podgroup-timestamp"] = stamp(random.choice(_STARTS))


def _forget(draft: Draft, group: Group, pod: Pod) -> None:
    group.pods.remove(pod)
    draft.claims = [claim for claim in draft.claims if claim.owner is not pod]
    draft.volumes = [volume for volume in draft.volumes if volume.claim != f"{pod.name}-data"]


def _finish(draft: Draft, pod: Pod) -> None:
    """Let ``pod`` end: it keeps its node's name and gives everything back, its own claim included."""
    node = pod.node
    unbook(pod)
    pod.node, pod.state = node, draft.random.choice(("succeeded", "failed"))
    draft.claims = [claim for claim in draft.claims if claim.owner is not pod]
    pod.claims = [claim for claim in pod.claims if claim.owner is not pod]


def _stop_at_gates(draft: Draft, group: Group) -> None:
    waiting = [pod for pod in group.pods if pod.state == "pending"]
    if waiting and draft.sometimes("gated", 0.25):
        for pod in waiting[: draft.random.randint(1, len(waiting))]:
            pod.state = "gated"


def _nominate(draft: Draft, group: Group) -> None:
    for pod in group.pods:
        if pod.state == "pending" and draft.sometimes("nominated", 0.3):
            pod.nominated = draft.random.choice(draft.nodes).name


def _bind_volumes(draft: Draft, group: Group) -> None:
    """Bind the claims of pods that have a node to volumes it reaches, and some of the others to volumes anywhere."""
    random = draft.random
    for pod in group.pods:
        for volume in pod.volumes:
            if volume.bound:
                continue
            if pod.node is not None:
                volume.bound, volume.reach = True, _reach(draft, volume.storage_class, pod.node)
            elif volume.storage_class == "standard":
                volume.bound = random.random() < 0.8
                volume.reach = _reach(draft, "standard", random.choice(draft.nodes)) if volume.bound else {}
            elif random.random() < 0.3:
                volume.bound, volume.reach = True, _reach(draft, volume.storage_class, random.choice(draft.nodes))


def _reach(draft: Draft, storage_class: str, node: Node) -> dict[str, str]:
    """Say from where a volume is reached: a local one from its node, others from a zone or from everywhere."""
    if storage_class == "local":
        return {HOST_LABEL: node.name}
    if draft.random.random() < 0.5 and ZONE_LABEL in node.labels:
        return {ZONE_LABEL: node.labels[ZONE_LABEL]}
    return {}
