import pytest

from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.pod import Pod
from kai.api.plans import (
    Await,
    Delete,
    Get,
    List,
    Lock,
    Now,
    Patch,
    Reason,
    Ref,
    Refusal,
    RefusedError,
    Unlock,
    create,
    delete,
    describe,
    every,
    find,
    find_for_sure,
    get,
    locked,
    patch,
    wait_until,
)
from kai.api.scheduling.bind_request import BindRequest
from kai.basics.errors import ApiError, InputError
from tests.doubles.plans import carry_out

MAP = Ref(ConfigMap, "m", "ns")


def answering(*replies):
    """Perform requests from a table, and remember them."""
    left, seen = list(replies), []

    def perform(request):
        seen.append(request)
        return left.pop(0)

    return perform, seen


def refusing(reason):
    return answering(Refusal(reason=reason, message="because"))[0]


def test_a_reply_becomes_the_result():
    found = ConfigMap()
    assert carry_out(get(MAP), lambda _: found) is found


def test_a_refusal_becomes_an_api_error_naming_the_request():
    with pytest.raises(ApiError, match="get configmap ns/m: because") as caught:
        carry_out(get(MAP), refusing(Reason.REJECTED))
    assert not caught.value.interrupts


@pytest.mark.parametrize(
    ("reason", "interrupts"),
    [(Reason.UNAVAILABLE, True), (Reason.UNKNOWN, True), (Reason.CONFLICT, False), (Reason.REJECTED, False)],
)
def test_only_a_missing_answer_interrupts(reason, interrupts):
    with pytest.raises(RefusedError) as caught:
        carry_out(get(MAP), refusing(reason))
    assert caught.value.interrupts is interrupts


@pytest.mark.parametrize(
    ("plan", "reason", "result"),
    [
        (find(MAP), Reason.NOT_FOUND, None),
        (create(MAP, {}), Reason.ALREADY_EXISTS, None),
        (delete(MAP), Reason.NOT_FOUND, False),
        (delete(MAP, uid="u"), Reason.CONFLICT, False),
        (wait_until(MAP, bool, seconds=1), Reason.TIMED_OUT, None),
        (wait_until(MAP, bool, seconds=1), Reason.NOT_FOUND, None),
    ],
)
def test_an_expected_refusal_is_a_result(plan, reason, result):
    assert carry_out(plan, refusing(reason)) is result


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (find(MAP), Reason.REJECTED),
        (create(MAP, {}), Reason.CONFLICT),
        (delete(MAP), Reason.CONFLICT),
        (wait_until(MAP, bool, seconds=1), Reason.UNAVAILABLE),
        (every(Pod), Reason.REJECTED),
        (patch(MAP, {}), Reason.NOT_FOUND),
    ],
)
def test_any_other_refusal_is_raised(plan, reason):
    with pytest.raises(RefusedError):
        carry_out(plan, refusing(reason))


def test_finding_surely_asks_the_store_before_the_server():
    found = ConfigMap()
    perform, seen = answering(Refusal(reason=Reason.NOT_FOUND), found)
    assert carry_out(find_for_sure(MAP), perform) is found
    assert [request.fresh for request in seen] == [False, True]
    perform, seen = answering(found)
    assert carry_out(find_for_sure(MAP), perform) is found
    assert len(seen) == 1


def test_preconditions_travel_in_the_metadata_of_a_patch():
    perform, seen = answering(ConfigMap())
    body = {"metadata": {"labels": {"a": "b"}}}
    carry_out(patch(MAP, body, uid="u", resource_version="7"), perform)
    assert seen[0].patch == {"metadata": {"uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}}
    assert body == {"metadata": {"labels": {"a": "b"}}}


def test_a_patch_without_preconditions_has_no_metadata():
    perform, seen = answering(ConfigMap())
    carry_out(patch(MAP, {"data": {}}), perform)
    assert seen[0].patch == {"data": {}}


def test_a_lock_is_released_on_success_and_failure():
    def works():
        yield Now()
        return 5

    def fails():
        yield Now()
        raise InputError("no")

    perform, seen = answering(None, 1.0, None)
    assert carry_out(locked("k", works()), perform) == 5
    assert seen == [Lock(key="k"), Now(), Unlock(key="k")]
    perform, seen = answering(None, 1.0, None)
    with pytest.raises(InputError):
        carry_out(locked("k", fails()), perform)
    assert seen[-1] == Unlock(key="k")


def test_a_dropped_plan_holding_a_lock_ends_quietly():
    def waits():
        yield Now()

    plan = locked("k", waits())
    plan.send(None)
    plan.send(None)
    plan.close()
    with pytest.raises(StopIteration):
        plan.send(None)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Get(ref=Ref(BindRequest, "p", "ns")), "get bindrequest ns/p"),
        (List(cls=Pod), "list pods"),
        (Delete(ref=MAP), "delete configmap ns/m"),
        (Patch(ref=MAP, patch={}), "patch configmap ns/m"),
        (Await(ref=MAP, until=bool, seconds=1), "await configmap ns/m"),
        (Lock(key="node n"), "lock node n"),
        (Now(), "read the clock"),
    ],
)
def test_requests_are_described_in_words(request_, words):
    assert describe(request_) == words
