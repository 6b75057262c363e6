"""Links that are shown and not yet written: how long they are left to a binding."""

from unittest.mock import Mock

import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.work import DONE
from kai.roles.podgrouper.links import ShownLinks

KEY = ("team", "p")
LINK = {"metadata": {"annotations": {"pod-group-name": "g"}}}


def pod(node="", uid="u", created="2026-01-01T00:00:00Z"):
    metadata = {"name": "p", "namespace": "team", "uid": uid, "creationTimestamp": created}
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    return structure_as(Pod, {"metadata": metadata, "spec": {"nodeName": node, "containers": containers}})


class Now:
    """A clock that stands where a test puts it; the pod was created at 0."""

    def __init__(self):
        self.at = 0.0

    def monotonic(self):
        return self.at

    def now(self):
        return pod().metadata.creation_timestamp + self.at


OTHER = structure_as(Pod, {"metadata": {"name": "other", "namespace": "team", "uid": "v"}})


@pytest.fixture
def links():
    store = Mock()
    store.is_overlaid.return_value = True
    store.is_assumed.return_value = False
    return ShownLinks(store, Now(), 0.5)


def test_a_shown_link_is_due_after_the_delay(links):
    assert links.may_ride(pod(), LINK)
    links.show(pod(), LINK)
    links.store.overlay.assert_called_once_with(Pod, KEY, {"pod-group-name": "g"})
    assert not links.is_due(pod())
    assert links.rest(KEY).after == 0.5
    links.clock.at = 0.5
    assert links.is_due(pod())


def test_a_link_is_shown_once_before_its_binding_only(links):
    assert not links.may_ride(pod(node="n1"), LINK)
    assert not links.may_ride(pod(), {"metadata": {"annotations": {}, "labels": {}}})
    links.show(pod(), LINK)
    assert not links.may_ride(pod(), LINK)
    links.delay_seconds = 0
    links.forget(KEY)
    assert not links.may_ride(pod(), LINK)


def test_a_link_waits_for_an_unfinished_binding(links):
    links.show(pod(), LINK)
    links.clock.at = 1.0
    links.store.is_assumed.return_value = True
    assert not links.is_due(pod())
    links.store.is_assumed.assert_called_with(BindRequest, KEY)
    assert links.rest(KEY).after == 2.0


def test_a_link_waits_for_other_binds_within_a_limit(links):
    links.show(pod(), LINK)
    links.show(OTHER, LINK)
    links.clock.at = 1.0
    links.bound(("team", "other"))
    assert not links.is_due(pod())
    links.clock.at = 61.0
    links.show(OTHER, LINK)
    links.bound(("team", "other"))
    assert links.is_due(pod())


def test_a_clock_behind_the_servers_does_not_delay_links(links):
    ahead = pod(created="2026-01-01T01:00:00Z")  # by the clock of the API server
    links.show(ahead, LINK)
    links.clock.at = 61.0
    links.show(OTHER, LINK)
    links.bound(("team", "other"))
    assert links.is_due(ahead)


@pytest.mark.parametrize("after", [pod(node="n1"), pod(uid="namesake")])
def test_a_bound_pod_or_its_namesake_needs_no_write(links, after):
    links.show(pod(), LINK)
    links.clock.at = 1.0
    assert not links.is_due(after)
    assert links.rest(KEY) is DONE
