"""What tenants may try and do not gain by it: `tenancy/attacks.yaml`, with kai and its policies on a real API server.

The tenant may do everything with pods, config maps, disruption budgets and all kinds of ``scheduling.run.ai`` in its
namespace. What a policy refuses it, an administrator does in its stead where a case says so: kai must hold without.
"""

import json
import re
from pathlib import Path
from typing import ClassVar

import attrs
import pytest
import yaml

from tests.integration.behaviour import Job, Part, Play
from tests.integration.client import Refused, until
from tests.integration.installation import install
from tests.integration.stage import POD_GROUP, an_object, scene, staged
from tests.unit.deploy.rendering import DEPLOY

ATTACKS = yaml.safe_load((Path(__file__).parent / "tenancy" / "attacks.yaml").read_text())
OTHERS, HOME, TENANT = "others", "attackers", "tenant"
RBAC = "rbac.authorization.k8s.io"
DRY = "All"
_NAMED = re.compile(r"\{(group|grant) of ([a-z0-9-]+)\}")
_LONG = re.compile(r"\{(\d+) letters\}")
_PLACES = {"group": ("labels", "runai-gpu-group"), "grant": ("annotations", "kai.scheduler/granted")}


@pytest.fixture(scope="module")
def cluster(bare_control_plane, tmp_path_factory):
    """Run all roles in one process with the policies that are shipped, and make a tenant without rights so far."""
    plane = bare_control_plane
    install(plane, DEPLOY)
    for name in (OTHERS, HOME):
        plane.admin.create(an_object("v1", "Namespace", name))
    plane.admin.create(an_object("v1", "ServiceAccount", TENANT, metadata={"namespace": HOME}))
    own = {"apiGroups": ["", "policy"], "resources": ["pods", "configmaps", "poddisruptionbudgets"], "verbs": ["*"]}
    ours = {"apiGroups": ["scheduling.run.ai"], "resources": ["*"], "verbs": ["*"]}
    plane.admin.create(an_object(f"{RBAC}/v1", "ClusterRole", "tests:tenant", rules=[own, ours]))
    with staged(plane, tmp_path_factory.mktemp("attacks")) as stage:
        stage.start("kai")
        yield stage


@attrs.define
class Raid(Play):
    """An attack, being performed."""

    KEYS: ClassVar = Play.KEYS | {"tries", "refused", "past", "again", "holds", "waits", "reservations", "silent"}

    _named: dict[str, str] = attrs.field(factory=dict)
    _reservations: list[str] = attrs.field(factory=list)

    def act(self, step):
        """Do what the owner of the case does, and then what the tenant does."""
        super().act(self.filled({key: part for key, part in step.items() if key in Play.KEYS - {"expect", "queues"}}))
        for name in step.get("again", ()):
            until(lambda name=name: not self.stage.pods(name), f"the pods of {name} to go")
            self.stage.create(self.jobs[name].pod(0))
        for attempt in self.filled(step.get("tries", [])):
            ((way, manifest),) = attempt.items()
            self.attempt(way, self.stage.placed(manifest), step)

    def attempt(self, way, manifest, step):
        """Have the tenant try something; policies and rights are in force a moment after they were written."""
        tenant = self.stage.plane.account(HOME, TENANT)
        wanted = step.get("refused", "")

        def is_answered():
            answers.append(refusal(tenant, way, manifest, dry=True))
            return wanted in answers[-1] if wanted else not answers[-1]

        answers: list[str] = []
        try:
            until(is_answered, "the API server's answer")
        except TimeoutError as error:
            raise AssertionError(f"{way} was answered by {answers[-1]!r}, expected {wanted!r}") from error
        if not wanted:
            assert not refusal(tenant, way, manifest)
        elif step.get("past"):
            assert not refusal(self.stage.api, way, manifest)

    def check(self, step, number):
        """Wait until everything is as a step expects it, and let other tenants start in between."""
        super().check(step, number)
        for part in step.get("holds", ()):
            until(lambda part=part: self.holds(self.filled(part)), f"{part['kind']} {part['metadata']['name']} to hold")
        if step.get("waits"):
            self.stage.settle()
        for each in step.get("waits", ()):
            assert not self.stage.api.get(self.stage.placed(each))["spec"].get("nodeName")
        if "reservations" in step:
            self.check_reservations(step["reservations"])
        for reason in step.get("silent", ()):
            assert self.stage.events(reason=reason) == []

    def check_reservations(self, wanted):
        """Look at the pods that hold GPUs for shares."""

        def found():
            return sorted(each["metadata"]["uid"] for each in self.stage.reservations())

        if wanted == "kept":
            assert found() == self._reservations
        else:
            until(lambda: len(found()) == wanted, f"{wanted} GPUs to be held for shares")
        self._reservations = found()

    def holds(self, part):
        """Return whether an object is there and says all of this."""
        there = self.stage.api.find(self.stage.placed(part))
        return there is not None and contains(there, part)

    def filled(self, part):
        """Return a part of the case with what is named in it put in."""

        def value(match):
            if match[0] not in self._named:
                field, key = _PLACES[match[1]]
                self._named[match[0]] = self.stage.pod(match[2])["metadata"][field][key]
            return json.dumps(self._named[match[0]])[1:-1]

        text = _NAMED.sub(value, json.dumps(part))
        return json.loads(_LONG.sub(lambda match: "x" * int(match[1]), text))


def refusal(api, way, manifest, *, dry=False):
    """Do something and return the text of the refusal, "" if it was done."""
    query = {"dryRun": DRY} if dry else {}
    body = {key: part for key, part in manifest.items() if key not in {"apiVersion", "kind"}}
    try:
        match way:
            case "create":
                api.create(manifest, **query)
            case "patch":
                api.patch(manifest, body, **query)
            case "status":
                api.patch(manifest, body, subresource="status", **query)
            case "delete":
                api.request("DELETE", api.path(manifest), **query)
            case _:
                raise AssertionError(f"{way} is nothing that a tenant can do")
    except Refused as refused:
        return refused.message
    return ""


def contains(found, part):
    """Return whether every value of ``part`` stands in ``found``."""
    if isinstance(part, dict):
        return isinstance(found, dict) and all(contains(found.get(key), value) for key, value in part.items())
    return found == part


def rights(stage):
    """Give the tenant its rights in the namespace of the test."""
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "tests:tenant"}
    subject = {"kind": "ServiceAccount", "name": TENANT, "namespace": HOME}
    stage.create(an_object(f"{RBAC}/v1", "RoleBinding", "tenant", roleRef=reference, subjects=[subject]))


def others_start(stage):
    """Have another tenant make a job, and wait until it runs."""
    made = [
        {**each, "metadata": {**each["metadata"], "namespace": OTHERS}}
        for each in Job(name="another", part=Part()).manifests()
    ]
    for manifest in made:
        stage.create(manifest)
    until(lambda: stage.api.get(made[-1])["status"].get("phase") == "Running", "the pod of another tenant to start")


@pytest.mark.parametrize("sentence", ATTACKS)
def test_an_attack_gains_nothing_and_costs_others_nothing(cluster, sentence):
    with scene(cluster) as stage:
        rights(stage)
        case = {key: part for key, part in ATTACKS[sentence].items() if key != "about"}
        try:
            Raid(stage).perform(case)
            others_start(stage)
        finally:
            for kind in (("v1", "Pod"), (POD_GROUP, "PodGroup")):
                for manifest in stage.api.list(*kind, OTHERS):
                    stage.api.delete(manifest, gracePeriodSeconds=0)
