"""``kai doctor`` on a real API server: what is installed is well, what is missing or wrong is named."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import pytest

from tests.integration.client import Api
from tests.integration.controlplane import ControlPlane
from tests.integration.installation import install
from tests.unit.deploy.rendering import DEPLOY, of_kind, render

QUEUE = "scheduling.run.ai/v2"


@attrs.define
class Patient:
    """A cluster with kai installed, and the way of a person to it."""

    plane: ControlPlane
    kubeconfig: str

    @property
    def api(self) -> Api:
        return self.plane.admin

    def look(self, capsys, *words):
        """Return the exit code of doctor, and its findings by code."""
        from kai.cli.command import run

        code = run(["doctor", "--kubeconfig", self.kubeconfig, "-o", "json", *words])
        found: dict[str, list] = {}
        for item in json.loads(capsys.readouterr().out)["items"]:
            found.setdefault(item["code"], []).append(item)
        return code, found


@pytest.fixture(scope="module")
def patient(bare_control_plane: ControlPlane) -> Patient:
    install(bare_control_plane, DEPLOY)
    return Patient(bare_control_plane, str(bare_control_plane.kubeconfig(bare_control_plane.admin, "doctor")))


@contextmanager
def running(api: Api, name: str, *words: str) -> Iterator[None]:
    """Let the pod of a program of kai be there, as its Deployment would make it."""
    (deployment,) = (each for each in of_kind(render(DEPLOY), "Deployment") if each["metadata"]["name"] == "kai")
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    spec = {
        **{key: value for key, value in template["spec"].items() if key != "priorityClassName"},
        "automountServiceAccountToken": False,
        "containers": [{**container, "args": ["run", *words]}],
    }
    metadata = {**template["metadata"], "name": name, "namespace": "kai-scheduler"}
    made = api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        yield
    finally:
        api.delete(made, gracePeriodSeconds=0)


def test_the_shipped_installation_is_healthy_with_all_rights(patient, capsys):
    with running(patient.api, "kai-one"):
        code, found = patient.look(capsys)
    bad = {code for code, items in found.items() if any(each["severity"] == "fail" for each in items)}
    skipped = {code for code, items in found.items() if any(each["severity"] == "skip" for each in items)}
    assert (code, bad, skipped) == (0, set(), set())
    (rights,) = found["D005"]
    assert (rights["severity"], rights["message"].startswith("rights complete for binder")) == ("ok", True)
    assert found["D023"][0]["severity"] == "ok"
    assert found["D001"][0]["message"].startswith("API server v1.")


@contextmanager
def without_right(api: Api, name: str, resource: str) -> Iterator[None]:
    """Take the rules about a resource from a role for a while."""
    reference = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    role = api.get(reference)
    api.replace({**role, "rules": [rule for rule in role["rules"] if resource not in rule["resources"]]})
    try:
        yield
    finally:
        api.replace({**api.get(reference), "rules": role["rules"]})


def test_a_missing_right_and_second_scheduler_are_named(patient, capsys):
    api = patient.api
    with (
        without_right(api, "kai:binder", "pods/binding"),
        running(api, "kai-one"),
        running(api, "kai-two", "scheduler"),
    ):
        code, found = patient.look(capsys)
    assert code == 1
    assert "create pods/binding" in found["D005"][0]["found"]
    assert "decide about the nodes without a node pool" in found["D006"][0]["message"]


def test_a_queue_without_its_parent_is_named(patient, capsys):
    limits = {part: {"quota": 1, "limit": -1, "overQuotaWeight": 1} for part in ("gpu", "cpu", "memory")}
    spec = {"parentQueue": "nowhere", "resources": limits}
    made = patient.api.create({"apiVersion": QUEUE, "kind": "Queue", "metadata": {"name": "orphan"}, "spec": spec})
    code, found = patient.look(capsys, "--only", "D031")
    patient.api.delete(made)
    assert code == 1
    assert (found["D031"][0]["object"], found["D031"][0]["found"]) == ("queue/orphan", "nowhere")


def test_an_account_without_rights_has_checks_skipped_not_failed(patient, capsys):
    account = patient.plane.account("kai-scale-adjust", "scaling-pod")
    poor = Patient(patient.plane, str(patient.plane.kubeconfig(account, "poor")))
    code, found = poor.look(capsys, "--only", "D002,D031")
    assert code == 3  # of the two, only D031 needs a list, and was not judged
    assert found["D002"][0]["severity"] == "warn"
    assert (found["D031"][0]["severity"], "the right to list queues" in found["D031"][0]["message"]) == ("skip", True)


def test_permissions_of_queues_are_held_against_what_schedulers_require(patient, capsys):
    limits = {part: {"quota": 1, "limit": -1, "overQuotaWeight": 1} for part in ("gpu", "cpu", "memory")}
    metadata = {"name": "mine", "annotations": {"kai.scheduler/allowed-namespaces": "ml"}}
    spec = {"resources": limits}
    made = [patient.api.create({"apiVersion": QUEUE, "kind": "Queue", "metadata": metadata, "spec": spec})]
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "spec": {"queue": "mine", "minMember": 1}}
    made.append(patient.api.create({**group, "metadata": {"name": "stray", "namespace": "kai-scale-adjust"}}))
    with running(patient.api, "kai-one"):
        code, found = patient.look(capsys, "--only", "D041")
    assert (code, found["D041"][0]["severity"]) == (0, "warn")
    assert found["D041"][0]["message"] == "1 queue (mine) allow namespaces, and no scheduler requires it"
    with running(patient.api, "kai-one", "--queue-access=required"):
        code, found = patient.look(capsys, "--only", "D041")
    for each in made:
        patient.api.delete(each)
    assert (code, found["D041"][0]["object"]) == (1, "queue/mine")
    told = "queue mine does not allow the namespaces of 1 job: kai-scale-adjust/stray"
    assert found["D041"][0]["message"] == told
