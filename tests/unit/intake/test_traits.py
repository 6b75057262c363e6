import pytest

from kai.facts.model.constraints import (
    AffinityTerm,
    HostPort,
    NodeTerm,
    Requirement,
    Selector,
    SpreadConstraint,
    Toleration,
)
from kai.facts.model.pod import ClaimReference
from kai.intake.traits import ANY_ADDRESS
from tests.unit.intake.making import pod, taken

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HIGH = {"nodeSelector": {"disk": "fast"}}


def constraints(**spec):
    return taken(pod("a", spec=spec)).shapes[0].constraints


def signature(name="a", **body):
    return taken(pod(name, **body)).pods[0].signature


def test_a_node_selector_is_sorted():
    assert constraints(nodeSelector={"b": "2", "a": "1"}).node_selector == (("a", "1"), ("b", "2"))


def test_a_node_affinity_keeps_terms_about_labels_and_fields():
    term = {
        "matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x", "y"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
    }
    found = constraints(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term, {}]}}}).node_affinity
    expected = NodeTerm((Requirement("zone", "NotIn", ("x", "y")),), (Requirement("metadata.name", "In", ("n",)),))
    assert found == (expected, NodeTerm())


def test_required_node_affinity_without_terms_matches_no_node():
    assert constraints(affinity={"nodeAffinity": {}}).node_affinity is None
    assert constraints(affinity={"nodeAffinity": {REQUIRED: {}}}).node_affinity == ()


def test_pod_affinity_terms_default_to_the_pods_own_namespace():
    selector = {"matchLabels": {"app": "x"}}
    terms = [
        {"topologyKey": "host", "labelSelector": selector},
        {"topologyKey": "host", "labelSelector": selector, "namespaces": ["b", "a"]},
        {"topologyKey": "host", "labelSelector": selector, "namespaceSelector": {}},
        {"topologyKey": "host"},
    ]
    app = Selector((Requirement("app", "In", ("x",)),))
    assert constraints(affinity={"podAffinity": {REQUIRED: terms}}).affinity == (
        AffinityTerm("host", app, ("default",)),
        AffinityTerm("host", app, ("a", "b")),
        AffinityTerm("host", app, (), Selector()),
        AffinityTerm("host", None, ("default",)),
    )


def test_wishes_about_pods_carry_their_weight():
    wish = {"weight": 7, "podAffinityTerm": {"topologyKey": "host", "labelSelector": {}}}
    found = constraints(affinity={"podAntiAffinity": {PREFERRED: [wish]}, "podAffinity": {PREFERRED: [wish]}})
    expected = (AffinityTerm("host", Selector(), ("default",), weight=7),)
    assert found.preferred_affinity == found.preferred_anti_affinity == expected
    assert found.affinity == found.anti_affinity == ()


def test_equal_tolerations_are_one_and_their_order_says_nothing():
    one, two = {"key": "b", "effect": "NoSchedule"}, {"key": "a", "operator": "Exists"}
    expected = (Toleration("a", "Exists"), Toleration("b", "Equal", "", "NoSchedule"))
    assert constraints(tolerations=[one, two, one]).tolerations == expected


def test_host_ports_come_from_containers_and_sidecars():
    def opening(port, **more):
        return {"ports": [{"containerPort": 80, **port}], **more}

    found = constraints(
        containers=[opening({"hostPort": 8080}), opening({})],
        initContainers=[
            opening({"hostPort": 1, "protocol": "UDP", "hostIP": "10.0.0.1"}, restartPolicy="Always"),
            opening({"hostPort": 2}),
        ],
    ).host_ports
    assert found == (HostPort("TCP", ANY_ADDRESS, 8080), HostPort("UDP", "10.0.0.1", 1))


def test_under_host_network_container_ports_are_host_ports():
    found = constraints(hostNetwork=True, containers=[{"ports": [{"containerPort": 80}]}]).host_ports
    assert found == (HostPort("TCP", ANY_ADDRESS, 80),)


def test_a_nominated_node_is_part_of_a_pods_constraints():
    made = pod("a", status={"nominatedNodeName": "n"})
    assert taken(made).shapes[0].constraints.nominated_node == "n"


def test_claims_are_named_directly_or_by_their_template_status():
    made = pod(
        "a",
        spec={
            "resourceClaims": [
                {"name": "direct", "resourceClaimName": "shared"},
                {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "waiting", "resourceClaimTemplateName": "t"},
                {"name": "needless", "resourceClaimTemplateName": "t"},
            ],
        },
        status={"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "a-made"}, {"name": "needless"}]},
    )
    assert taken(made).shapes[0].constraints.claims == (
        ClaimReference(name="direct", claim="shared"),
        ClaimReference(name="made", claim="a-made", template=True),
        ClaimReference(name="waiting", claim="", template=True),
    )


def test_volume_claims_are_named_or_derived_from_the_pod():
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
    ]
    assert constraints(volumes=volumes).volume_claims == ("a-scratch", "shared")


def test_a_required_spread_constraint_is_read_completely():
    demand = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    selecting = {"labelSelector": {"matchLabels": {"app": "x"}}, "matchLabelKeys": ["z", "b", "b"], "minDomains": 3}
    policies = {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    app = Selector((Requirement("app", "In", ("x",)),))
    assert constraints(topologySpreadConstraints=[demand, demand | selecting | policies]).spread == (
        SpreadConstraint("zone", None, 2),
        SpreadConstraint("zone", app, 2, 3, ("b", "z"), honors_affinity=False, honors_taints=True),
    )


@pytest.mark.parametrize(
    "change",
    [{"whenUnsatisfiable": "ScheduleAnyway"}, {"whenUnsatisfiable": ""}, {"maxSkew": 0}, {"topologyKey": ""}],
)
def test_soft_and_impossible_spread_constraints_are_left_out(change):
    demand = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    assert constraints(topologySpreadConstraints=[demand | change]).spread == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"x": "y"}},
        {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]}}},
        {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "host"}]}}},
        {"tolerations": [{"operator": "Exists"}]},
        {"priorityClassName": "high"},
        {"priority": 5},
        {"topologySpreadConstraints": [{"topologyKey": "host", "maxSkew": 1}]},
        {"containers": [{"ports": [{"hostPort": 80}]}]},
        {"volumes": [{"name": "v", "csi": {"driver": "d"}}]},
    ],
)
def test_different_demands_give_different_signatures(spec):
    assert signature(spec=spec) != signature()
    assert signature(spec=spec) == signature("b", spec=spec)


@pytest.mark.parametrize(
    "body",
    [
        {"requests": {"cpu": "5", "nvidia.com/gpu": "1"}},
        {"annotations": {"gpu-fraction": "0.5"}},
        {"labels": {"app": "x"}},
        {"status": {"nominatedNodeName": "n"}},
        {
            "spec": {
                "volumes": [{"name": "v", "configMap": {"name": "c"}}, {"name": "w", "secret": {"secretName": "s"}}]
            }
        },
    ],
)
def test_amounts_and_labels_are_not_part_of_a_signature(body):
    assert signature(**body) == signature()


def test_a_signature_does_not_depend_on_any_order():
    one = {"nodeSelector": {"a": "1", "b": "2"}, "tolerations": [{"key": "x"}, {"key": "y"}]}
    two = {"nodeSelector": {"b": "2", "a": "1"}, "tolerations": [{"key": "y"}, {"key": "x"}]}
    assert signature(spec=one) == signature(spec=two)


RESTARTS = {"name": "main", "restartPolicy": "Never", "restartPolicyRules": [{"action": "RestartAllContainers"}]}
MOUNTS = {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}]}


@pytest.mark.parametrize(
    ("spec", "features"),
    [
        ({}, ()),
        ({"containers": [RESTARTS]}, ("RestartAllContainersOnContainerExits",)),
        ({"initContainers": [RESTARTS]}, ("RestartAllContainersOnContainerExits",)),
        ({"containers": [{**RESTARTS, "restartPolicyRules": [{"action": "Restart"}]}]}, ()),
        ({"containers": [MOUNTS]}, ("VolumeBindMountOptions",)),
        ({"hostNetwork": True, "hostUsers": False}, ("UserNamespacesHostNetworkSupport",)),
        ({"hostNetwork": True}, ()),
        ({"hostUsers": False}, ()),
    ],
)
def test_a_pods_features_are_those_its_kubelet_must_declare(spec, features):
    assert constraints(**spec).features == features


def test_different_required_features_give_different_signatures():
    assert signature(spec={"hostNetwork": True, "hostUsers": False}) != signature(spec={"hostNetwork": True})
