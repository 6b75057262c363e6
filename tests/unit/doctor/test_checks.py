"""Each check says nothing of a healthy cluster, and names what is wrong with a spoilt one."""

import pytest

from kai.api.kinds import BY_CLASS
from kai.cli.running.flags import LEASES, ROLES, TOGETHER
from kai.doctor import seen as seeing
from kai.doctor.checks import CHECKS, POLICIES
from kai.doctor.cluster_reading import TABLE, rights_of, rights_of_readers
from kai.doctor.seen import Seen, Severity, run_check
from tests.unit.deploy.rendering import DEPLOY, LASTING, of_kind, render
from tests.unit.deploy.test_roles import RIGHTS
from tests.unit.doctor.breakages import ALLOWED, FLAGS, MENDS, REPLICAS, SPOILT, THEIRS, taken_over
from tests.unit.doctor.cluster import (
    HEALTHY,
    NOW,
    definition,
    deployment,
    group,
    kai_pod,
    lease,
    noted,
    obj,
    queue,
    with_lists,
)

BY_CODE = {check.code: check for check in CHECKS}


@pytest.mark.parametrize("code", BY_CODE)
def test_a_healthy_cluster_is_well(code):
    verdict = run_check(BY_CODE[code], HEALTHY)
    assert [each.message for each in verdict.findings] == []
    assert verdict.severity is Severity.OK
    assert len(verdict.message) > 8


def test_a_holder_whose_clock_is_behind_renews_its_lease():
    held = noted(lease("kai-scheduler", age=3600, holder="a-x"))
    verdict = run_check(BY_CODE["D008"], with_lists(pods=(kai_pod("a", *FLAGS),), leases=(held,)))
    assert [each.message for each in verdict.findings] == []


@pytest.mark.parametrize("case", SPOILT)
def test_a_spoilt_cluster_is_named(case):
    code, seen, severity, message = SPOILT[case]
    verdict = run_check(BY_CODE[code], seen)
    assert verdict.severity == severity
    assert message in verdict.findings[0].message
    assert MENDS[case] in verdict.findings[0].help


def test_each_of_forty_breakages_has_its_remedy():
    assert MENDS.keys() == SPOILT.keys()
    assert len(SPOILT) >= 40


def test_each_check_has_a_case_that_spoils_it():
    assert {code for code, *_ in SPOILT.values()} == BY_CODE.keys()
    assert [check.code for check in CHECKS] == sorted(BY_CODE)


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [
        ({ALLOWED: "ml"}, {}),
        ({ALLOWED: "*"}, {}),
        ({"kai.scheduler/allowed-namespace-labels": "team=a"}, {"team": "a"}),
    ],
)
def test_a_queue_that_allows_a_namespace_is_no_finding(annotations, labels):
    required = kai_pod("kai-7c9-x", "--queue-access=required")
    seen = with_lists(
        pods=(required,),
        queues=(obj("a", annotations=annotations),),
        podgroups=(group("j", "a"),),
        namespaces=(obj("ml", labels=labels),),
    )
    assert run_check(BY_CODE["D041"], seen).findings == ()


def test_permissions_that_no_scheduler_requires_are_named():
    (finding,) = run_check(BY_CODE["D041"], with_lists(queues=(obj("a", annotations={ALLOWED: "ml"}),))).findings
    assert finding.message == "1 queue (a) allow namespaces, and no scheduler requires it"


def test_kai_schedulers_scheduler_of_another_pool_only_warns():
    theirs = deployment("kai-scheduler-fast", "x/kai-scheduler/scheduler", args=("--partition-label-value=fast",))
    verdict = run_check(BY_CODE["D007"], with_lists(deployments=(theirs,)))
    assert verdict.severity is Severity.WARN


def test_a_shard_in_an_unread_file_is_mentioned():
    shard = kai_pod("gpu-1", "scheduler", "--scheduler-conf=/etc/config/shard.yaml", owner="gpu-1")
    queues = (queue("a"), obj("b", labels={"kai.scheduler/node-pool": "gpu"}, spec={}))
    for code, told in (("D006", "unless a shard in --scheduler-conf says otherwise"), ("D039", "names it")):
        (finding,) = run_check(BY_CODE[code], with_lists(pods=(kai_pod(), shard), queues=queues)).findings
        assert (finding.severity, told in finding.message) == (Severity.WARN, True)
    known = kai_pod("gpu-1", "scheduler", "--scheduler-conf=x", "--partition-label-value", "gpu", owner="gpu-1")
    for code in ("D006", "D039"):
        assert run_check(BY_CODE[code], with_lists(pods=(kai_pod(), known), queues=queues)).findings == ()


def test_flags_are_read_in_both_forms_of_go():
    words = ("scheduler", "--scheduler-name", "other", "--leader-elect", "binder", "-partition-label-value", "gpu")
    (program,) = with_lists(pods=(kai_pod("a", *words),)).programs()
    assert (program.pool, program.elects, program.roles) == (("other", "gpu"), True, ("scheduler", "binder"))


@pytest.mark.parametrize(
    ("flag", "elects"), [("--leader-elect=TRUE", True), ("--leader-elect=F", False), ("--qps=5", False)]
)
def test_leader_election_flags_read_booleans_like_go(flag, elects):
    (program,) = with_lists(pods=(kai_pod("a", "scheduler", flag),)).programs()
    assert program.elects is elects


def test_rights_are_checked_in_the_namespaces_of_flags():
    flags = {"resource-reservation-namespace": "runai-reservation", "scale-adjust-namespace": ""}
    found = {each.namespace for each in rights_of(ROLES, flags)}
    assert found == {"", "runai-reservation", "kai-scale-adjust"}


def test_an_operator_that_reverts_names_its_stop_command():
    operator = deployment("kai-operator", "x/operator")
    for replicas, stop in ((1, "kubectl -n kai-scheduler scale deploy kai-operator --replicas=0; "), (0, "")):
        seen = with_lists(deployments=(taken_over(), {**operator, "spec": {"replicas": replicas}}))
        (finding,) = run_check(BY_CODE["D011"], seen).findings
        assert finding.help.startswith(f"{stop}kubectl -n kai-scheduler delete deploy kai-scheduler-default ")
        assert "beside" not in finding.message


def test_foreign_owners_and_sidecars_are_no_leftovers():
    found = with_lists(deployments=(taken_over("proxy", apiVersion="apps.example.com/v1"),))
    assert run_check(BY_CODE["D011"], found).findings == ()


def test_a_scheduler_scaled_to_zero_is_no_finding():
    theirs = deployment("kai-scheduler-default", "x/kai-scheduler/scheduler", replicas=0)
    assert run_check(BY_CODE["D007"], with_lists(deployments=(theirs,))).findings == ()


def test_the_stopping_field_is_named_only_where_it_exists():
    crds = (*HEALTHY.lists["crds"], definition("configs.kai.scheduler", "v1", REPLICAS))
    with_field = with_lists(deployments=(THEIRS,), crds=crds, configs=(obj("kai-config"),))
    (finding,) = run_check(BY_CODE["D007"], with_field).findings
    assert "kubectl patch config.kai.scheduler kai-config" in finding.help
    assert "spec.scheduler.replicas" in finding.help
    (without,) = run_check(BY_CODE["D007"], with_lists(deployments=(THEIRS,))).findings
    assert "scale deploy kai-operator kai-scheduler-default --replicas=0" in without.help


def test_what_cannot_be_read_is_skipped_and_said():
    verdict = run_check(BY_CODE["D031"], Seen(now=NOW, unread={"queues": "not allowed"}))
    assert verdict.severity is Severity.SKIP
    right = "it takes the right to list queues.scheduling.run.ai"
    assert verdict.message == f"tree of queues: not looked at: {right}"
    verdict = run_check(BY_CODE["D044"], Seen(now=NOW, unread={"resourcequotas": "HTTP status 500"}))
    why = "not looked at: resourcequotas: HTTP status 500"
    assert verdict.message == f"quotas of the namespace of reservations: {why}"


def test_every_checked_right_is_shipped():
    asked = {
        (each.role, each.namespace or "cluster", each.group, each.resource, each.verb) for each in rights_of(ROLES)
    }
    roles = {(where, group, what, verb) for _, where, group, what, verb in RIGHTS}
    own = {(role, where, group, what, verb) for role, where, group, what, verb in RIGHTS}
    alone = {
        (role, each.namespace or "cluster", each.group, each.resource, each.verb)
        for role in TABLE
        for each in rights_of([role])
    }
    assert {each[1:] for each in asked} <= roles
    assert alone <= own
    assert {each.verb for each in rights_of_readers()} == {"list"}


def test_rights_to_each_watched_kind_are_checked():
    """A role waits until it may list and watch what it follows, so a right that lacks there stops it."""
    from kai.cli.running.roles import SCHEDULER_WATCHES
    from kai.roles.binder.service import WATCHED as BINDER
    from kai.roles.controllers.node_scale_service import WATCHED as SCALE
    from kai.roles.controllers.podgroup_service import WATCHED as POD_GROUPS
    from kai.roles.controllers.queue_service import WATCHED as QUEUES
    from kai.roles.podgrouper.owner_reading import WATCHED as GROUPER

    followed = {
        "scheduler": SCHEDULER_WATCHES,
        "binder": BINDER,
        "podgrouper": GROUPER,
        "podgroup-controller": POD_GROUPS,
        "queue-controller": QUEUES,
        "node-scale-adjuster": SCALE,
    }
    for role, classes in followed.items():
        asked = {(each.group, each.resource, each.verb) for each in rights_of([role])}
        kinds = [BY_CLASS[cls] for cls in classes if not BY_CLASS[cls].is_dispensable]
        assert {(kind.group, kind.plural, verb) for kind in kinds for verb in ("list", "watch")} <= asked, role


def test_each_policy_that_is_shipped_is_looked_for():
    shipped = {each["metadata"]["name"] for each in of_kind(render(DEPLOY), "ValidatingAdmissionPolicy")}
    assert set(POLICIES) == shipped


def test_remedies_for_missing_namespaces_and_classes_create_them():
    brought = {each["metadata"]["name"] for each in render(LASTING)}
    for code, lists in (("D038", {"namespaces": ()}), ("D040", {"priorityclasses": ()})):
        helped = [each.help for each in run_check(BY_CODE[code], with_lists(**lists)).findings]
        assert {each.partition("    ")[0] for each in helped} == {"kubectl apply -k deploy/lasting"}, code
    assert {"kai-resource-reservation", "train", "inference"} <= brought


def test_roles_and_leases_are_those_of_the_service():
    assert seeing.ROLES == ROLES
    assert seeing.TOGETHER == TOGETHER
    assert seeing.LEASES == LEASES
    assert TABLE.keys() == set(ROLES)
