import pytest

from kai.framework.decisions import Cause
from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.intake import making
from tests.unit.roles.scheduler.test_committer import cluster


@pytest.mark.parametrize("names_others", [False, True])
def test_an_event_names_a_foreign_aggressor_only_if_allowed(names_others):
    theirs = making.group("theirs", metadata={"namespace": "secret", "uid": "uid-theirs"})
    world = cluster(theirs, settings=SchedulerSettings(names_others=names_others))
    group = [each.name for each in world.snapshot.groups].index("theirs")
    world.decide(world.evict("old", Cause.RECLAIM, aggressor=group), world.promise("p0", "n2"))
    world.settle()
    (event,) = [event for event in world.server.events if event.reason == "Evict"]
    said = f"{event.message} {dict(event.annotations)}"
    assert ("secret" in said) is names_others
    assert ("uid-theirs of another namespace" in event.message) is not names_others
    assert event.annotations["evictor-action-type"] == "reclaim"
