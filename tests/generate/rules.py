"""Draw where pods may go, and tell whether a running pod is allowed to be where it was put.

Only what is drawn here need be understood here: selectors by equality, node affinity by five operators, taints, pod
(anti-)affinity by one label, host ports.
"""

from collections.abc import Iterable, Iterator

from tests.generate.draft import HOST_LABEL, RACK_LABEL, ZONE_LABEL, Draft, Node, Pod, Rules

APPS = ("app-0", "app-1", "app-2")
PORTS = ((8080, "TCP"), (8443, "TCP"), (9000, "UDP"))
_DISK, _GENERATION = "example.com/disk", "example.com/generation"

Term = tuple[tuple[str, str, tuple[str, ...]], ...]


def draw_rules(draft: Draft) -> Rules:
    """Draw the rules of a group; most have none."""
    random = draft.random
    return Rules(
        selector=_selector(draft) if draft.sometimes("selectors", 0.3) else (),
        terms=_terms(draft) if draft.sometimes("node-affinity", 0.3) else (),
        preferred=_term(draft) if draft.sometimes("node-affinity", 0.2) else (),
        tolerations=_tolerations(draft) if draft.sometimes("taints", 0.6) else (),
        near=_companion(draft) if draft.sometimes("pod-affinity", 0.3) else None,
        near_softly=_companion(draft) if draft.sometimes("pod-affinity", 0.2) else None,
        apart=_companion(draft) if draft.sometimes("pod-anti-affinity", 0.3) else None,
        ports=(random.choice(PORTS),) if draft.sometimes("ports", 0.35) else (),
    )


def _selector(draft: Draft) -> tuple[tuple[str, str], ...]:
    """Select by a label that some node has, or rarely by one that none has."""
    random = draft.random
    node = random.choice(draft.nodes)
    key = random.choice((_DISK, ZONE_LABEL, RACK_LABEL, HOST_LABEL, "nvidia.com/gpu.product"))
    return ((key, node.labels.get(key, "nowhere")),)


def _terms(draft: Draft) -> tuple[Term, ...]:
    return tuple(_term(draft) for _ in range(draft.random.choice((1, 1, 2))))


def _term(draft: Draft) -> Term:
    random = draft.random
    node = random.choice(draft.nodes)
    forms = (
        (_DISK, random.choice(("In", "NotIn")), (random.choice(("ssd", "hdd")),)),
        (HOST_LABEL, random.choice(("In", "NotIn")), tuple(sorted({node.name, random.choice(draft.nodes).name}))),
        (random.choice((ZONE_LABEL, "nvidia.com/gpu.count")), random.choice(("Exists", "DoesNotExist")), ()),
        (_GENERATION, random.choice(("Gt", "Lt")), (str(random.randint(1, 3)),)),
    )
    return tuple(random.sample(forms, random.choice((1, 1, 2))))


def _tolerations(draft: Draft) -> tuple[tuple[tuple[str, str], ...], ...]:
    random = draft.random
    by_value = (("key", "example.com/team"), ("operator", "Equal"), ("value", random.choice(("red", "blue"))))
    by_key = (("key", "example.com/team"), ("operator", "Exists"), ("effect", "NoSchedule"))
    return (random.choice((by_value, by_key, (("operator", "Exists"),))),)


def _companion(draft: Draft) -> tuple[str, str]:
    """Draw the app to be near to or away from, and within what."""
    return draft.random.choice(APPS), draft.random.choice((HOST_LABEL, HOST_LABEL, RACK_LABEL, ZONE_LABEL))


def admits(draft: Draft, pod: Pod, node: Node) -> bool:
    """Tell whether ``pod`` may run on ``node`` beside the pods that are placed already."""
    rules = pod.rules
    return (
        all(node.labels.get(key) == value for key, value in rules.selector)
        and (not rules.terms or any(_meets(node, term) for term in rules.terms))
        and all(_tolerates(rules.tolerations, taint) for taint in node.taints)
        and not any(port in node.ports for port in rules.ports)
        and not any(_repel(pod, other, node) for other in _placed(draft))
        and _is_near(draft, pod, node)
    )


def _meets(node: Node, term: Term) -> bool:
    return all(_holds(node.labels.get(key), operator, values) for key, operator, values in term)


def _holds(found: str | None, operator: str, values: tuple[str, ...]) -> bool:
    match operator:
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Gt":
            return found is not None and int(found) > int(values[0])
        case _:
            return found is not None and int(found) < int(values[0])


def _tolerates(tolerations: Iterable[tuple[tuple[str, str], ...]], taint: dict[str, str]) -> bool:
    if taint["effect"] == "PreferNoSchedule":
        return True
    for toleration in map(dict, tolerations):
        keys_agree = toleration.get("key", taint["key"]) == taint["key"]
        effects_agree = toleration.get("effect", taint["effect"]) == taint["effect"]
        values_agree = toleration["operator"] == "Exists" or toleration.get("value", "") == taint["value"]
        if keys_agree and effects_agree and values_agree:
            return True
    return False


def _placed(draft: Draft) -> Iterator[Pod]:
    for node in draft.nodes:
        yield from node.pods


def _share_domain(one: Node | None, other: Node | None, key: str) -> bool:
    return one is not None and other is not None and key in one.labels and one.labels[key] == other.labels.get(key)


def _repel(pod: Pod, other: Pod, node: Node) -> bool:
    """Tell whether one of two pods must not have the other in its domain."""
    for rules, labels in ((pod.rules, other.labels), (other.rules, pod.labels)):
        if rules.apart:
            app, key = rules.apart
            if labels.get("app") == app and _share_domain(node, other.node, key):
                return True
    return False


def _is_near(draft: Draft, pod: Pod, node: Node) -> bool:
    """Tell whether ``pod`` has the company it needs; the first of its kind needs none but its own."""
    if pod.rules.near is None:
        return True
    app, key = pod.rules.near
    company = [other for other in _placed(draft) if other.labels.get("app") == app]
    if not company:
        return pod.labels.get("app") == app and key in node.labels
    return any(_share_domain(node, other.node, key) for other in company)
