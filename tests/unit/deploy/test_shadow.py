"""What ships for a shadow: an account that may only read, and a Deployment that is told to write nothing."""

from kai.cli.running.flags import FLAGS, ROLES, SCHEDULER, TOGETHER, read_flags
from tests.unit.deploy.rendering import DEPLOY, deployment, of_kind, render

MANIFESTS = render(DEPLOY / "overlays" / "shadow")
READ = {"list", "watch"}


def rights(rules):
    return {
        (group, what, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for what in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_shadow_reads_exactly_what_the_scheduler_reads():
    (role,) = of_kind(MANIFESTS, "ClusterRole")
    (scheduler,) = [
        each for each in of_kind(render(DEPLOY), "ClusterRole") if each["metadata"]["name"] == "kai:scheduler"
    ]
    given = rights(role["rules"])
    assert {verb for _, _, verb in given} == READ
    assert given == {each for each in rights(scheduler["rules"]) if each[2] in READ}


def test_the_account_has_no_other_role():
    (binding,) = of_kind(MANIFESTS, "ClusterRoleBinding")
    assert not of_kind(MANIFESTS, "RoleBinding")
    (account,) = of_kind(MANIFESTS, "ServiceAccount")
    assert binding["roleRef"]["name"] == "kai:shadow"
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (account["metadata"]["name"], account["metadata"]["namespace"])


def test_the_shadow_deployment_runs_without_a_lease():
    shadow = deployment(MANIFESTS, "kai-shadow")
    pod = shadow["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    first, *arguments = container["args"]
    assert first == "run"
    given = read_flags(arguments, FLAGS, ROLES, TOGETHER)
    assert (given.roles, given.truth("shadow"), given.truth("leader-elect")) == ((SCHEDULER,), True, False)
    assert pod["serviceAccountName"] == "kai-shadow"


def test_it_takes_the_name_of_nothing_that_runs():
    def keys(manifests):
        return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in manifests}

    for entry in ("base", "overlays/split"):
        assert not keys(MANIFESTS) & keys(render(DEPLOY / entry))
