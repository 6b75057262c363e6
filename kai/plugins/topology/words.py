"""The texts of topology's refusals: for conditions on pod groups, and in one plain line.

Source: the peer's topology plugin; conditions equal its texts to the character.
"""

from collections.abc import Iterator, Mapping, Sequence

import attrs

from kai.framework import DEFAULT_SUBGROUP, Detail, Words, mig_slices

Facts = Mapping[str, object]

ANY_DOMAIN = "any domain"
"""``where`` of a refusal: the common domain is large enough, but no domain of the requested level is."""
NO_DOMAIN = "Not enough resources for the workload"
_NAMES = {"cpu": "CPU cores", "memory": "memory", "gpu": "GPUs", "gpu-memory": "GPU memory"}


@attrs.frozen(kw_only=True)
class SmallDomain:
    """A domain that is too small: for how many of the pods it has room, or what it is short of where pods differ."""

    name: str
    held: int = -1
    """-1: the pods were not counted."""
    short: tuple[str, ...] = ()


def _text(facts: Facts) -> str:
    """Return the refusal of a group; its details say what single domains lack."""
    topology = facts.get("topology", "")
    subgroup = str(facts.get("subgroup", ""))
    named = subgroup if subgroup != DEFAULT_SUBGROUP else ""
    if facts.get("missing") == "topology":
        return f"Requested topology {topology} does not exist"
    if facts.get("missing") == "level":
        return (
            f"topology constraint error: {f'sub-group {named}' if named else 'workload'} specified "
            f"'{facts.get('level', '')}' as the {facts.get('placement', 'required')} topology constraint level, "
            f"but the topology tree '{topology}' does not contain a level with this name"
        )
    whom = f"job <{facts.get('group', '')}>" + (f", subgroup {named}" if named else "")
    text = f"topology {topology}, requirement {facts.get('requirement', '')} couldn't be satisfied for {whom}"
    if facts.get("where", ANY_DOMAIN) == ANY_DOMAIN:
        return text
    return f"{text}: not enough resources in {facts['where']} to allocate the job"


def _plain(facts: Facts) -> str:
    if "missing" in facts:
        return _text(facts)
    level = str(facts.get("requirement", "")).rpartition("/")[2] or "domain"
    wish, is_one = "must" if facts.get("required") else "should", facts.get("pods") == 1
    if facts.get("where", ANY_DOMAIN) == ANY_DOMAIN:
        whom = "a pod of it" if is_one else f"its {facts.get('pods', '')} pods together"
        return f"no {level} has room for {whom}"
    if is_one:
        return f"{facts['where']} has no room for a pod of it, which {wish} be in a {level}"
    return f"{facts['where']} has no room for its {facts.get('pods', '')} pods, which {wish} share a {level}"


def _details(facts: Facts) -> Sequence[Detail]:
    """Return what each candidate domain lacks."""
    small = facts.get("small", ())
    domains = small if isinstance(small, tuple) else ()
    return [Detail(each.name, tuple(_lines(each, facts)), NO_DOMAIN) for each in domains]


def _lines(domain: SmallDomain, facts: Facts) -> Iterator[str]:
    if domain.held >= 0:
        yield f"node-group {domain.name} can allocate only {domain.held} of {facts.get('pods', 0)} required pods"
    for resource in domain.short:
        if mig_slices(resource) != (0, 0) or "/mig-" in resource:
            yield f"node-group(s) didn't have enough of mig profile: {resource}"
        else:
            yield f"node-group(s) didn't have enough resources: {_NAMES.get(resource, resource)}"


DOMAIN_TOO_SMALL = Words(
    code="DomainTooSmall", text=_text, plain=_plain, plain_code="TopologyHasNoRoom", details=_details
)
"""No domain has room for the pods of a sub-group, or there is no such topology or level."""
