"""The page on switching names each object that KAI-Scheduler's operator left and that kai would be merged into."""

import re
from pathlib import Path

from tests.unit.deploy.rendering import DEPLOY, ENTRIES, LASTING, of_kind, render

PAGE = Path(__file__).parents[3] / "docs" / "migrating-from-kai-go.md"
# What the operator makes (pkg/operator/operands of commit d5bc503a) for a Config and the shard "default", beside
# webhook configurations and Secrets.
_COMPONENTS = ("binder", "pod-grouper", "podgroup-controller", "queue-controller", "admission", "node-scale-adjuster")
MADE = {
    "Deployment": {*_COMPONENTS, "kai-scheduler-default"},
    "Service": {"binder", "podgroup-controller", "queue-controller", "admission", "kai-scheduler-default"},
    "ServiceAccount": {*_COMPONENTS, "scheduler"},
    "PodDisruptionBudget": {"pod-grouper", "admission", "kai-scheduler-default"},
}


def test_the_guide_deletes_all_objects_of_shared_names():
    (kinds, names) = re.search(r"delete --ignore-not-found (\S+) \\\n(.*)", PAGE.read_text()).groups()
    assert set(kinds.split(",")) == {"deploy", *(kind.lower() for kind in MADE if kind != "Deployment")}
    ours = {
        (each["kind"], each["metadata"]["name"])
        for entry in ENTRIES
        for each in render(DEPLOY / entry)
        if each["metadata"].get("namespace") == "kai-scheduler"
    }
    shared = {(kind, name) for kind, names_of_kind in MADE.items() for name in names_of_kind} & ours
    assert ("Deployment", "admission") in shared
    assert ("Deployment", "kai-scheduler-default") in shared
    assert {name for _, name in shared} <= set(names.split())


def test_the_way_back_unlabels_each_restricted_namespace():
    (names, labels) = re.search(r"kubectl label namespace (.*?) \\\n *(.*)", PAGE.read_text()).groups()
    enforced = {
        each["metadata"]["name"]: each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in of_kind(render(LASTING), "Namespace")
    }
    assert set(names.split()) == {name for name, standard in enforced.items() if standard == "restricted"}
    assert "pod-security.kubernetes.io/enforce-" in labels.split()


def test_the_last_job_is_admitted_before_the_release_goes():
    commands = PAGE.read_text().partition("## For good")[2].partition("```\n")[2].partition("```")[0].splitlines()
    first, second = (" ".join(line.partition("#")[0].split()) for line in commands[:2])
    assert first == "kubectl label namespace kai-scheduler pod-security.kubernetes.io/enforce-"
    assert second == "helm uninstall kai-scheduler -n kai-scheduler"
    assert any("deploy/lasting" in line for line in commands[2:])  # which has the standard
