"""What can be added to an installation: it selects what is there, and says what the documentation says."""

import re

import pytest

from tests.unit.deploy.rendering import DEPLOY, ENTRIES, of_kind, render

DOCS = DEPLOY.parent / "docs"
INSTALLING = (DOCS / "install.md").read_text()
MONITORING = (DOCS / "monitoring.md").read_text()
COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())
INSTALLED = [manifest for entry in ("lasting", *ENTRIES) for manifest in render(DEPLOY / entry)]
CLASSES = {each["metadata"]["name"] for each in of_kind(INSTALLED, "PriorityClass")}


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_component_is_in_the_documentation(name):
    assert f"`deploy/components/{name}`" in INSTALLING


def test_alerts_are_those_of_the_documentation():
    (rule,) = of_kind(render(DEPLOY / "components" / "monitoring"), "PrometheusRule")
    shipped = {(each["expr"], each.get("for", "0m")) for group in rule["spec"]["groups"] for each in group["rules"]}
    table = MONITORING.partition("### Alerts worth having")[2].partition("\n## ")[0]
    found = re.findall(r"^\| [^|]+ \| `(.+?)`(?: for (\w+))? \|", table, re.MULTILINE)
    assert {(expression, wait or "0m") for expression, wait in found} == shipped


def test_alerts_ask_for_metrics_that_exist():
    (rule,) = of_kind(render(DEPLOY / "components" / "monitoring"), "PrometheusRule")
    asked = {
        name
        for group in rule["spec"]["groups"]
        for each in group["rules"]
        for name in re.findall(r"kai_\w+", each["expr"])
    }
    documented = set(re.findall(r"^\| `(kai_\w+)`", MONITORING, re.MULTILINE))
    assert {name.removesuffix("_bucket") for name in asked} <= documented


def test_the_monitor_finds_the_services_and_their_port():
    (monitor,) = of_kind(render(DEPLOY / "components" / "monitoring"), "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    services = of_kind(INSTALLED, "Service")
    assert services
    for service in services:
        assert wanted <= service["metadata"]["labels"].items()
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_the_past_usage_prometheus_selects_the_monitor():
    (monitor,) = of_kind(render(DEPLOY / "components" / "monitoring"), "ServiceMonitor")
    assert monitor["metadata"]["labels"]["kai.scheduler/accounting"] == "true"


def chosen(policies, namespace, labels):
    """Return the policies that hold for a pod."""
    return [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == namespace
        and policy["spec"]["podSelector"].get("matchLabels", {}).items() <= labels.items()
    ]


@pytest.mark.parametrize("entry", ENTRIES)
def test_network_policies_leave_open_the_needed_ports(entry):
    manifests = render(DEPLOY / entry)
    policies = of_kind(manifests, "NetworkPolicy")
    assert {"Ingress"} == {each for policy in policies for each in policy["spec"]["policyTypes"]}
    monitoring = [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
        {"namespaceSelector": {"matchLabels": {"kai.scheduler/may-read-metrics": "true"}}},
    ]
    for deployment in of_kind(manifests, "Deployment"):
        template = deployment["spec"]["template"]
        ports = {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}
        mine = chosen(policies, "kai-scheduler", template["metadata"]["labels"])
        rules = [rule for policy in mine for rule in policy["spec"]["ingress"]]
        opened = {port["port"]: rule.get("from") for rule in rules for port in rule["ports"]}
        # The node is let in to its own pods by every network, so its probes need no rule; the API server has no name.
        assert {name: opened[name] for name in ports - {"probes"}} == {
            "http-metrics": monitoring,
            **({"webhooks": None} if "webhooks" in ports else {}),
        }
        assert "probes" not in opened


def test_nothing_may_connect_to_reservation_pods():
    policies = of_kind(render(DEPLOY), "NetworkPolicy")
    for namespace in ("kai-resource-reservation", "kai-scale-adjust"):
        (policy,) = chosen(policies, namespace, {"any": "label"})
        assert "ingress" not in policy["spec"]


@pytest.mark.parametrize("entry", ENTRIES)
def test_our_own_pods_go_before_all_others(entry):
    for deployment in of_kind(render(DEPLOY / entry), "Deployment"):
        assert deployment["spec"]["template"]["spec"]["priorityClassName"] == "kai-system"
    assert "kai-system" in CLASSES


def test_extra_rights_equal_the_split_forms_for_peer_accounts():
    accounts = {"pod-grouper": "podgrouper"}  # the others are called alike

    def given(manifests):
        return {
            (each["kind"], each["metadata"].get("namespace", ""), each["roleRef"]["name"], accounts.get(name, name))
            for kind in ("ClusterRoleBinding", "RoleBinding")
            for each in of_kind(manifests, kind)
            for name in [each["subjects"][0]["name"]]
            if name not in {"kai-resource-reservation", "admission"}
        }

    split = render(DEPLOY / "overlays" / "split")
    assert given(render(DEPLOY / "rights")) == given(split)


def test_device_access_webhooks_cover_ephemeral_containers():
    base, component = DEPLOY / "base", DEPLOY / "components" / "device-access"
    for kind, name in (("MutatingWebhookConfiguration", "mutation"), ("ValidatingWebhookConfiguration", "validation")):
        (asked,) = [
            {what: rule["operations"] for rule in each["webhooks"][0]["rules"] for what in rule["resources"]}
            for each in of_kind(render(base, component), kind)
            if each["metadata"]["name"] == f"kai-pod-{name}"
        ]
        assert asked["pods/ephemeralcontainers"] == ["UPDATE"]
        assert "CREATE" in asked["pods"]
