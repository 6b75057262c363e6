"""kai applied where KAI-Scheduler's operator left its objects, with the words of the guide and without them."""

import json
import re
from pathlib import Path

import pytest

from kai.cli.command import run
from tests.integration.client import STRATEGIC, Refused, until
from tests.integration.installation import install
from tests.integration.together import an_object
from tests.unit.deploy.rendering import DEPLOY, deployment, render

NAMESPACE = "kai-scheduler"
GUIDE = Path(__file__).parents[2] / "docs" / "migrating-from-kai-go.md"
CONFIG = {"apiVersion": "kai.scheduler/v1", "kind": "Config"}


def left_over(admin):
    """Make the Deployment ``admission`` as the operator makes it for its Config, scaled to nothing."""
    config = admin.ensure({**CONFIG, "metadata": {"name": "kai-config"}, "spec": {}})
    owner = {**CONFIG, "name": "kai-config", "uid": config["metadata"]["uid"], "controller": True}
    metadata = {
        "labels": {"app": "admission", "app.kubernetes.io/managed-by": "kai-operator"},
        "ownerReferences": [owner],
    }
    container = {"name": "admission", "image": "ghcr.io/kai-scheduler/kai-scheduler/admission:v0.17.0"}
    template = {"metadata": {"labels": {"app": "admission"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "admission"}}, "template": template}
    return admin.create(an_object("apps/v1", "Deployment", "admission", NAMESPACE, metadata=metadata, spec=spec))


def refusal(admin, pod):
    """Return why a pod is not admitted now, "" if it is: labels of its namespace are heard of after a moment."""
    try:
        admin.create(pod, dryRun="All")
    except Refused as error:
        return str(error)
    return ""


def containers(found):
    return {each["name"] for each in found["spec"]["template"]["spec"]["containers"]}


@pytest.fixture(scope="module")
def plane(bare_control_plane):
    install(bare_control_plane, DEPLOY)
    return bare_control_plane


def found_by_doctor(plane, capsys):
    code = run(["doctor", "--kubeconfig", str(plane.kubeconfig(plane.admin, "doctor")), "--only", "D011", "-o", "json"])
    return code, [each["message"] for each in json.loads(capsys.readouterr().out)["items"]]


@pytest.mark.parametrize("by", ["kubectl apply --server-side", "kubectl apply"])
def test_a_manifest_over_the_peers_is_found_by_doctor(plane, capsys, by):
    admin, ours = plane.admin, deployment(render(DEPLOY), "admission")
    theirs = left_over(admin)
    if by == "kubectl apply":
        admin.patch(theirs, ours, content_type=STRATEGIC)
    else:
        admin.apply(ours)
    both = admin.get(ours)
    assert containers(both) == {"admission", "kai"}  # what the guide warns of is what the API server does
    code, (message,) = found_by_doctor(plane, capsys)
    assert code == 1
    assert message == (
        "deployment kai-scheduler/admission still belongs to Config kai-config of KAI-Scheduler, is deleted with it, "
        "and runs admission of KAI-Scheduler beside kai"
    )

    (names,) = re.findall(r"delete --ignore-not-found deploy,\S+ \\\n(.*)", GUIDE.read_text())
    for name in names.split():
        admin.delete(an_object("apps/v1", "Deployment", name, NAMESPACE))
    admin.apply(ours)
    assert containers(admin.get(ours)) == {"kai"}
    assert found_by_doctor(plane, capsys) == (0, ["no Deployment of kai is left over from KAI-Scheduler"])
    admin.delete(ours)


OPERATOR: dict[str, object] = {}
"""What containers of KAI-Scheduler's operator, and of the Jobs of its Helm release, say of security: nothing."""
OPERAND = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "runAsUser": 10000,
    "capabilities": {"drop": ["all"]},
}
"""What those of its other programs and of its reservation pods say, by its defaults."""


@pytest.mark.parametrize(
    ("namespace", "security"),
    [(NAMESPACE, OPERATOR), (NAMESPACE, OPERAND), ("kai-resource-reservation", OPERAND)],
)
def test_the_guides_command_has_the_peers_pods_admitted_again(plane, namespace, security):
    admin = plane.admin
    container = {"name": "main", "image": "none", "securityContext": security}
    theirs = an_object("v1", "Pod", "theirs", namespace, spec={"containers": [container]})
    until(lambda: 'violates PodSecurity "restricted' in refusal(admin, theirs), "the pod to be refused")
    (names, labels) = re.search(r"kubectl label namespace (.*?) \\\n *(.*)", GUIDE.read_text()).groups()
    assert namespace in names.split()
    before = admin.get(an_object("v1", "Namespace", namespace))
    admin.patch(before, {"metadata": {"labels": {each.removesuffix("-"): None for each in labels.split()}}})
    until(lambda: not refusal(admin, theirs), "the pod to be admitted")
    admin.patch(before, {"metadata": {"labels": before["metadata"]["labels"]}})
