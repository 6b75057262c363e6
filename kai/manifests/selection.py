"""An API server's validation of node and pod selection: affinities, selectors, tolerations, spreading.

Source: the validation of Kubernetes; see ``kai.manifests.refused``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kai.basics.parsing import is_number, mapping_of
from kai.manifests.faults import Fault, Item, at_least, items, key_fault, one_of, shown, value_fault
from kai.manifests.positions import Path

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_SETS, _PRESENCE, _COMPARISONS = ("In", "NotIn"), ("Exists", "DoesNotExist"), ("Gt", "Lt")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_WHOLE: Final = re.compile(r"[-+]?[0-9]+")
_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]*")
_MOST: Final = 1 << 63


def faults_of_selection(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    """Yield the faults in the spec of a pod."""
    yield from _of_tolerations(spec, at)
    yield from _of_spreading(spec, at)
    affinity = mapping_of(spec, "affinity")
    yield from _of_node_affinity(mapping_of(affinity, "nodeAffinity"), (*at, "affinity", "nodeAffinity"))
    for name in ("podAffinity", "podAntiAffinity"):
        yield from _of_pod_affinity(mapping_of(affinity, name), (*at, "affinity", name))


def _of_tolerations(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    for place, each in items(spec, "tolerations", at):
        operator, value = each.get("operator") or "Equal", each.get("value")
        if operator == "Exists" and value:
            yield Fault((*place, "value"), shown(value), "none beside operator Exists")
        elif operator == "Equal":
            yield from value_fault((*place, "value"), value)
        elif operator in _COMPARISONS and not _is_integer(value, _DECIMAL):
            yield Fault((*place, "value"), shown(value), f"a whole number beside operator {operator}")
        if each.get("key"):
            yield from key_fault((*place, "key"), each["key"])
        elif operator != "Exists":
            yield Fault((*place, "operator"), shown(each.get("operator")), "Exists where no key is given")
        if each.get("tolerationSeconds") is not None and each.get("effect") != "NoExecute":
            yield Fault((*place, "effect"), shown(each.get("effect")), "NoExecute beside tolerationSeconds")
        elif each.get("effect"):
            yield from one_of(place, each, "effect", _EFFECTS)


def _of_spreading(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    for place, each in items(spec, "topologySpreadConstraints", at):
        if not each.get("topologyKey"):
            yield Fault((*place, "topologyKey"), "nothing", "a label of nodes")
        skew = each.get("maxSkew")
        if not is_number(skew) or skew < 1:
            yield Fault((*place, "maxSkew"), shown(skew), "1 or more")
        yield from at_least(1, place, each, "minDomains")
        if each.get("whenUnsatisfiable") is None:
            yield Fault((*place, "whenUnsatisfiable"), "nothing", "DoNotSchedule or ScheduleAnyway")
        yield from one_of(place, each, "whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"))
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from one_of(place, each, field, ("Honor", "Ignore"))
        yield from _of_selector(mapping_of(each, "labelSelector"), (*place, "labelSelector"))


def _of_node_affinity(affinity: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    required = affinity.get(_REQUIRED)
    if isinstance(required, Mapping):
        place = (*at, _REQUIRED)
        if not required.get("nodeSelectorTerms"):
            yield Fault((*place, "nodeSelectorTerms"), "no term", "at least one term")
        for where, term in items(required, "nodeSelectorTerms", place):
            yield from _of_term(term, where)
    for place, each in items(affinity, _PREFERRED, at):
        yield from _of_weight(each, place)
        yield from _of_term(mapping_of(each, "preference"), (*place, "preference"))


def _of_pod_affinity(affinity: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    terms: list[Item] = items(affinity, _REQUIRED, at)
    for place, each in items(affinity, _PREFERRED, at):
        yield from _of_weight(each, place)
        terms.append(((*place, "podAffinityTerm"), mapping_of(each, "podAffinityTerm")))
    for place, term in terms:
        yield from key_fault((*place, "topologyKey"), term.get("topologyKey") or None)
        for field in ("labelSelector", "namespaceSelector"):
            yield from _of_selector(mapping_of(term, field), (*place, field))


def _of_weight(each: Mapping[str, Any], place: Path) -> Iterator[Fault]:
    weight = each.get("weight")
    if not is_number(weight) or not 1 <= weight <= 100:
        yield Fault((*place, "weight"), shown(weight), "1 to 100")


def _of_term(term: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    """Yield the faults in one alternative of a node affinity, and a comparison that holds for no node."""
    for place, each in items(term, "matchExpressions", at):
        yield from _of_expression(each, place, (*_SETS, *_PRESENCE, *_COMPARISONS))
        operator, values = each.get("operator"), each.get("values")
        if operator not in _COMPARISONS or not isinstance(values, list | None):
            continue
        if len(values or ()) != 1:
            yield Fault(
                (*place, "values"), shown(values) if values else "none", f"one value beside operator {operator}"
            )
        elif values and isinstance(values[0], str) and not _is_integer(values[0], _WHOLE):
            expected = f"a whole number beside operator {operator}"
            yield Fault((*place, "values", 0), shown(values[0]), expected, code="J026")
    for place, each in items(term, "matchFields", at):
        yield from one_of(place, each, "operator", _SETS)
        yield from one_of(place, each, "key", ("metadata.name",))
        values = each.get("values")
        if isinstance(values, list | None) and len(values or ()) != 1:
            yield Fault((*place, "values"), shown(values) if values else "none", "one name of a node")


def _of_selector(selector: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    """Yield the faults in a label selector."""
    for key, value in mapping_of(selector, "matchLabels").items():
        yield from key_fault((*at, "matchLabels", str(key)), key)
        yield from value_fault((*at, "matchLabels", str(key)), value)
    for place, each in items(selector, "matchExpressions", at):
        yield from _of_expression(each, place, (*_SETS, *_PRESENCE))


def _of_expression(each: Mapping[str, Any], place: Path, operators: Sequence[str]) -> Iterator[Fault]:
    yield from key_fault((*place, "key"), each.get("key"))
    operator, values = each.get("operator"), each.get("values")
    if operator not in operators:
        yield Fault((*place, "operator"), shown(operator), f"one of {', '.join(operators)}")
    if operator in _SETS and not values:
        yield Fault((*place, "values"), "none", f"at least one value beside operator {operator}")
    if operator in _PRESENCE and values:
        yield Fault((*place, "values"), shown(values), f"none beside operator {operator}")
    if operator in _SETS:
        for index, value in enumerate(values if isinstance(values, list) else ()):
            yield from value_fault((*place, "values", index), value)


def _is_integer(value: object, form: re.Pattern[str]) -> bool:
    """Return whether a text is an integer of 64 bits."""
    return isinstance(value, str) and form.fullmatch(value) is not None and -_MOST <= int(value) < _MOST
