"""The admission policies: whom they look at, how they are bound, and that the documentation and the names agree."""

import re
import shutil
import subprocess

import pytest
import yaml

from kai.api import names
from tests.unit.deploy.rendering import DEPLOY, load, of_kind, render

POLICIES = {m["metadata"]["name"]: m for m in of_kind(render(DEPLOY / "policies"), "ValidatingAdmissionPolicy")}
BINDINGS = {m["metadata"]["name"]: m for m in of_kind(render(DEPLOY / "policies"), "ValidatingAdmissionPolicyBinding")}
QUEUE_ACCESS = DEPLOY / "components" / "queue-access" / "policy.yaml"
KUBECTL = shutil.which("kubectl")
EACH = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def expressions(policy):
    spec = policy["spec"]
    for part in ("matchConditions", "variables", "validations"):
        for each in spec.get(part, ()):
            yield each["expression"]
            yield each.get("messageExpression", "")


def test_every_policy_is_bound_and_denies():
    assert {binding["spec"]["policyName"] for binding in BINDINGS.values()} == POLICIES.keys()
    assert all(binding["spec"]["validationActions"] == ["Deny"] for binding in BINDINGS.values())


def resources(match):
    """Return each group, resource and operation that rules name."""
    return {
        (group, resource, operation)
        for rule in match["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }


@pytest.mark.parametrize(
    "folder", [DEPLOY / "policies" / "priority-classes.yaml", QUEUE_ACCESS], ids=["classes", "queues"]
)
def test_partial_bindings_together_cover_their_policy(folder):
    manifests = load(folder)
    for policy in of_kind(manifests, "ValidatingAdmissionPolicy"):
        all_of = resources(policy["spec"]["matchConstraints"])
        name = policy["metadata"]["name"]
        bindings = [
            binding["spec"].get("matchResources", policy["spec"]["matchConstraints"])
            for binding in of_kind(manifests, "ValidatingAdmissionPolicyBinding")
            if binding["spec"]["policyName"] == name
        ]
        assert all_of <= set().union(*map(resources, bindings))


@EACH
def test_a_policy_for_pods_looks_at_ours_alone(policy):
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    if any("pods" in rule["resources"] for rule in rules):
        conditions = " ".join(each["expression"] for each in policy["spec"]["matchConditions"])
        is_ours = (f"schedulerName == '{names.SCHEDULER_NAME}'", names.GRANTED, names.LEASE)
        assert any(each in conditions for each in is_ours)
    assert {group for rule in rules for group in rule["apiGroups"]} <= {"", "scheduling.run.ai"}


@EACH
def test_unconditional_refusals_have_match_conditions(policy):
    if any(each["expression"] == "false" for each in policy["spec"]["validations"]):
        assert policy["spec"]["matchConditions"]


@EACH
def test_a_refusal_says_what_was_found_and_expected(policy):
    for each in policy["spec"]["validations"]:
        assert re.search("found .*expected ", each["messageExpression"])


@EACH
def test_no_policy_names_an_account_or_namespace_of_ours(policy):
    text = " ".join(expressions(policy))
    assert "serviceaccount:kai" not in text
    assert names.RESERVATION_NAMESPACE not in text


@EACH
def test_keys_are_those_that_kai_reads(policy):
    known = {value for value in vars(names).values() if isinstance(value, str)}
    said = {key for text in expressions(policy) for key in re.findall(r"'((?:kai\.scheduler|runai)/[a-z-]+)'", text)}
    assert said <= known


def test_every_policy_is_in_the_documentation():
    page = (DEPLOY.parent / "docs" / "tenancy.md").read_text()
    assert {name for name in POLICIES if f"`{name}`" not in page} == set()


def kustomized(folder, **overlay):
    """Return what kubectl makes of an overlay over a copy of ``deploy``."""
    shutil.copytree(DEPLOY, folder / "deploy")
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    printed = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, check=True, text=True).stdout
    return list(yaml.safe_load_all(printed))


WITH_KUBECTL = pytest.mark.skipif(KUBECTL is None, reason="kubectl, which changes names, is not installed")


@WITH_KUBECTL
@pytest.mark.parametrize("form", ["base", "overlays/split"])
def test_a_name_prefix_keeps_bindings_and_rights_consistent(form, tmp_path):
    manifests = kustomized(tmp_path, namePrefix="east-", resources=[f"deploy/{form}"])
    bound = {each["spec"]["policyName"] for each in of_kind(manifests, "ValidatingAdmissionPolicyBinding")}
    assert bound == {f"east-{name}" for name in POLICIES}
    accounts = {each["metadata"]["name"] for each in of_kind(manifests, "ServiceAccount")}
    roles = {each["metadata"]["name"]: each for each in of_kind(manifests, "ClusterRole")}
    may_override = {
        subject["name"]
        for binding in of_kind(manifests, "ClusterRoleBinding")
        if any("override" in rule["verbs"] for rule in roles[binding["roleRef"]["name"]]["rules"])
        for subject in binding["subjects"]
    }
    assert may_override
    assert may_override <= accounts
    assert all(name.startswith("east-") for name in may_override)


@WITH_KUBECTL
def test_in_another_namespace_leases_are_looked_for_there(tmp_path):
    manifests = kustomized(tmp_path, namespace="east", resources=["deploy/policies"])
    bindings = of_kind(manifests, "ValidatingAdmissionPolicyBinding")
    places = [place for each in bindings if (place := each["spec"].get("paramRef", {}).get("namespace"))]
    assert places == ["east"]
