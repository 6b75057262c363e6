"""The number of pods that a component and its descendants need, and the component that a pod belongs to."""

from kai.basics.errors import InputError
from kai.roles.podgrouper.karta.definition import Component, Definition, Member, TypeSelector
from kai.roles.podgrouper.karta.evaluate import evaluate
from kai.roles.podgrouper.karta.values import json_of, number
from kai.roles.podgrouper.resource import INT32_MAX, Manifest, Resource


def subtree_scale(definition: Definition, workload: Manifest, name: str, instance: str | None = None) -> int:
    """Return how many pods the component ``name``, or one instance of it, needs with all its descendants.

    If the Karta has no scale at all, every kind of pod counts once.
    Raises: InputError when a query, or its result, is invalid.
    """
    if definition.states_scale:
        return _stated_scale(definition, workload, name, instance)
    return _counted_leaves(definition, workload, name, instance)


def instance_ids(component: Component, workload: Manifest) -> tuple[str, ...]:
    """Return the names of the component's instances; one empty name if it has no instances."""
    if component.instances is None:
        return ("",)
    found = evaluate(component.instances, workload)
    for each in found:
        if not isinstance(each, str) or not each:
            raise InputError.about(f'component "{component.name}"', "instanceIdPath", found=each, wanted="names")
    return tuple(each for each in found if isinstance(each, str))


def component_of_pod(definition: Definition, pod: Resource) -> str:
    """Return the leaf that the pod belongs to: the only leaf, or the first whose selector matches.

    Raises: InputError when none matches.
    """
    leaves = definition.leaves
    if len(leaves) == 1:
        return leaves[0].name
    for leaf in leaves:
        if is_of_type(leaf.type_selector, pod):
            return leaf.name
    raise InputError(f"{pod}: found no component of its Karta that it is of")


def is_of_type(selector: TypeSelector | None, pod: Resource) -> bool:
    """Return whether ``selector`` matches the pod; a missing selector matches none."""
    if selector is None:
        return False
    if selector.value is None:
        return any(found is not None for found in evaluate(selector.key, pod.manifest))
    # The comparison is part of the query's text, so that its precedence is the same as in the peer.
    return any(found is True for found in evaluate(f"{selector.key} == {json_of_text(selector.value)}", pod.manifest))


def is_in_subtree(definition: Definition, name: str, pod: Resource) -> bool:
    """Return whether the pod belongs to the component ``name`` or to a descendant."""
    if is_of_type(definition.components[name].type_selector, pod):
        return True
    return any(is_in_subtree(definition, child, pod) for child in definition.children_of(name))


def member_of_pod(definition: Definition, pod: Resource, component: str) -> Member | None:
    """Return the first instruction whose filters the pod passes: of its own component, else of an ancestor."""
    for level in definition.line_of(component):
        for member in definition.members:
            if member.component == level and all(single(query, pod) is True for query in member.filters):
                return member
    return None


def single(query: str, pod: Resource) -> object:
    """Return the one result of ``query`` on the pod.

    Raises: InputError when there is not exactly one, or it is empty.
    """
    found = evaluate(query, pod.manifest)
    if len(found) != 1 or found[0] is None or found[0] == "":
        raise InputError.about(str(pod), query, found=[*found] or None, wanted="one value that is not empty")
    return found[0]


def json_of_text(text: str) -> str:
    """Return ``text`` as a string literal of a query."""
    return json_of([text])[1:-1]


def _stated_scale(definition: Definition, workload: Manifest, name: str, instance: str | None) -> int:
    component = definition.components[name]
    scales = _scales(component, workload)
    if instance is None:
        own = sum(scales.values())
    elif instance in scales:
        own = scales[instance]
    else:
        raise InputError.about(
            f'component "{name}"', "instanceIdPath", found=[*scales], wanted=f'"{instance}" among them'
        )
    below = sum(_stated_scale(definition, workload, child, None) for child in definition.children_of(name))
    # A component without a scale leaves it to the level above or below.
    return own * below if own and below else own or below


def _counted_leaves(definition: Definition, workload: Manifest, name: str, instance: str | None) -> int:
    component = definition.components[name]
    if not component.is_leaf:
        return sum(_counted_leaves(definition, workload, child, None) for child in definition.children_of(name))
    if component.instances is None:
        return 1
    found = instance_ids(component, workload)
    if instance is None:
        return len(found)
    if instance not in found:
        raise InputError.about(
            f'component "{name}"', "instanceIdPath", found=[*found], wanted=f'"{instance}" among them'
        )
    return 1


def _scales(component: Component, workload: Manifest) -> dict[str, int]:
    """Return the replicas that each instance needs: its minimum if it has one, else all of them."""
    if component.scale is None:
        return {}
    replicas, minimums, maximums = (
        _numbers(component, query, workload)
        for query in (component.scale.replicas, component.scale.minimum, component.scale.maximum)
    )
    count = max(len(replicas), len(minimums), len(maximums))
    ids = instance_ids(component, workload)
    if len(ids) != count:
        raise InputError.about(
            f'component "{component.name}"', "scaleDefinition", found=count, wanted=f"{len(ids)} results"
        )
    return {
        each: next((found[row] for found in (minimums, replicas) if row < len(found) and found[row] > 0), 0)
        for row, each in enumerate(ids)
    }


def _numbers(component: Component, query: str | None, workload: Manifest) -> tuple[int, ...]:
    if query is None:
        return ()
    found = []
    for each in evaluate(query, workload):
        count = 0 if each is None else number(each)
        if count is None or count != count // 1 or abs(count) > INT32_MAX:
            raise InputError.about(
                f'component "{component.name}"', query, found=each, wanted="a whole number of replicas"
            )
        found.append(int(count))
    return tuple(found)
