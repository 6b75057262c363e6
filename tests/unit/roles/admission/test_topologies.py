from kai.roles.admission.review import AdmissionRequest, AdmissionSettings
from kai.roles.admission.webhooks import validate


def ask(*levels, operation="CREATE"):
    manifest = {"kind": "Topology", "metadata": {"name": "net"}, "spec": {"levels": list(levels)}}
    request = AdmissionRequest(operation=operation, kind="Topology", object=manifest)
    return validate(request, AdmissionSettings(), lambda _: None)


def level(label, alias=None):
    return {"nodeLabel": label} if alias is None else {"nodeLabel": label, "alias": alias}


def test_levels_with_their_own_aliases_pass():
    assert ask(level("a", "zone"), level("b"), level("c", ""), level("d", "rack")).allowed


def test_an_alias_used_three_times_is_named_twice():
    response = ask(level("a", "x"), level("b", "x"), level("c", "x"))
    assert response.message == (
        "invalid topology aliases: aliases must be unique within the topology; duplicated: [x x]"
    )


def test_an_alias_equal_to_a_label_is_refused_too():
    response = ask(level("a", "b"), level("b", "b"))
    assert "duplicated: [b]; an alias must not equal a nodeLabel; conflicting: [b b]" in response.message


def test_a_topology_may_always_be_deleted():
    assert ask(level("a", "x"), level("b", "x"), operation="DELETE").allowed


def test_levels_that_are_no_list_are_refused():
    request = AdmissionRequest(operation="CREATE", kind="Topology", object={"spec": {"levels": {"a": 1}}})
    response = validate(request, AdmissionSettings(), lambda _: None)
    assert response.malformed
    assert "spec.levels: found" in response.message


def test_kinds_without_rules_pass():
    request = AdmissionRequest(operation="CREATE", kind="Widget", object={"spec": 1})
    assert validate(request, AdmissionSettings(), lambda _: None).allowed
