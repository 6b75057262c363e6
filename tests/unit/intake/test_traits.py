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


def test_without_a_demand_there_is_no_node_affinity_and_without_terms_one_that_nothing_meets():
    assert constraints(affinity={"nodeAffinity": {}}).node_affinity is None
    assert constraints(affinity={"nodeAffinity": {REQUIRED: {}}}).node_affinity == ()


def test_terms_about_pods_look_into_the_pods_own_namespace_unless_they_say_otherwise():
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


def test_ports_of_the_host_are_those_of_containers_and_sidecars():
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


def test_on_the_hosts_network_every_port_is_one_of_the_host():
    found = constraints(hostNetwork=True, containers=[{"ports": [{"containerPort": 80}]}]).host_ports
    assert found == (HostPort("TCP", ANY_ADDRESS, 80),)


def test_a_nominated_node_is_part_of_what_a_pod_wants():
    made = pod("a", status={"nominatedNodeName": "n"})
    assert taken(made).shapes[0].constraints.nominated_node == "n"


def test_claims_are_named_directly_or_by_what_was_made_from_a_template():
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


def test_volume_claims_are_named_or_called_after_pod_and_volume():
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
    ]
    assert constraints(volumes=volumes).volume_claims == ("a-scratch", "shared")


def test_a_demand_to_be_spread_is_kept_as_it_is_written():
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
def test_wishes_to_be_spread_and_demands_that_no_pod_could_obey_are_left_out(change):
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
def test_pods_that_differ_in_what_they_demand_have_different_signatures(spec):
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
def test_amounts_labels_nominations_config_maps_and_secrets_are_not_part_of_a_signature(body):
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
def test_a_pod_needs_what_a_kubelet_must_declare_to_run_it(spec, features):
    assert constraints(**spec).features == features


def test_pods_that_need_other_features_of_nodes_have_another_signature():
    assert signature(spec={"hostNetwork": True, "hostUsers": False}) != signature(spec={"hostNetwork": True})
