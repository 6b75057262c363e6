"""What can be added to an installation: it selects what is there, and says what the documentation says."""

import re

import pytest

from tests.unit.deploy.rendering import DEPLOY, ENTRIES, of_kind, render

PAGE = (DEPLOY.parent / "docs" / "operations.md").read_text()
COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())
INSTALLED = [manifest for entry in ENTRIES for manifest in render(DEPLOY / entry)]
CLASSES = {each["metadata"]["name"] for each in of_kind(INSTALLED, "PriorityClass")}


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_component_is_in_the_documentation(name):
    assert f"`deploy/components/{name}`" in PAGE


def test_alerts_are_those_of_the_documentation():
    (rule,) = of_kind(render(DEPLOY / "components" / "monitoring"), "PrometheusRule")
    shipped = {(each["expr"], each.get("for", "0m")) for group in rule["spec"]["groups"] for each in group["rules"]}
    table = PAGE.partition("### Alerts worth having")[2].partition("\n## ")[0]
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
    documented = set(re.findall(r"^\| `(kai_\w+)`", PAGE, re.MULTILINE))
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


def test_network_policies_leave_open_what_somebody_must_reach():
    policies = of_kind(render(DEPLOY / "components" / "network-policy"), "NetworkPolicy")
    for deployment in of_kind(INSTALLED, "Deployment"):
        template = deployment["spec"]["template"]
        labels = template["metadata"]["labels"].items()
        ports = {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}
        chosen = [
            policy
            for policy in policies
            if policy["metadata"]["namespace"] == "kai-scheduler"
            and policy["spec"]["podSelector"]["matchLabels"].items() <= labels
        ]
        opened = {port["port"] for policy in chosen for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert opened & ports == ports - {"probes"}  # the kubelet is let in by every network


@pytest.mark.parametrize("entry", ENTRIES)
def test_our_own_pods_go_before_all_others(entry):
    for deployment in of_kind(render(DEPLOY / entry), "Deployment"):
        assert deployment["spec"]["template"]["spec"]["priorityClassName"] == "kai-system"
    assert "kai-system" in CLASSES


def test_the_rights_beside_the_peer_are_those_of_the_split_form_for_its_accounts():
    accounts = {"pod-grouper": "podgrouper"}  # the others are called alike

    def given(manifests):
        return {
            (each["kind"], each["metadata"].get("namespace", ""), each["roleRef"]["name"], accounts.get(name, name))
            for kind in ("ClusterRoleBinding", "RoleBinding")
            for each in of_kind(manifests, kind)
            for name in [each["subjects"][0]["name"]]
            if name != "kai-resource-reservation"
        }

    split = render(DEPLOY / "overlays" / "split")
    assert given(render(DEPLOY / "rights")) == given(split)
