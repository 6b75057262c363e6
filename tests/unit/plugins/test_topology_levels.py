"""What topology makes of the objects that it reads, and what it tells of the constraints of groups."""

import pytest

from kai.facts.model.axis import GroupRow, SubGroupRow
from kai.intake import take_snapshot
from kai.plugins.topology import Topology
from kai.plugins.topology.tree import TOPOLOGIES, Levels
from kai.testing.views import open_session
from tests.unit.intake.making import group, objects, other, pod, queue

LEVELS = [{"nodeLabel": "example.com/zone", "alias": "zone"}, {"nodeLabel": "example.com/rack"}]


def session_of(*constraints, levels=LEVELS):
    made = [
        each
        for at, constraint in enumerate(constraints)
        for each in (group(f"g{at}", topologyConstraint=constraint), pod(f"p{at}", group=f"g{at}"))
    ]
    topology = other("Topology", "kai.scheduler/v1alpha1", "t", spec={"levels": levels})
    return open_session(take_snapshot(objects(topology, queue("q"), *made), 0.0), Topology())


def asked(session, at=0):
    root = SubGroupRow(int(session.facts.groups.first_subgroup[at]))
    return session.policy.together(GroupRow(at), root)


def test_topology_levels_have_labels_from_wide_to_narrow():
    found = session_of().view.values(TOPOLOGIES)
    labels = ("example.com/zone", "example.com/rack")
    assert found == {"t": Levels(name="t", labels=labels, aliases={"zone": "example.com/zone"})}


@pytest.mark.parametrize("name", ["zone", "example.com/zone"])
def test_an_alias_asks_for_what_its_label_asks_for(name):
    (found,) = asked(session_of({"topology": "t", "requiredTopologyLevel": name}))
    assert (found.level, found.tree) == ("example.com/zone", "t")
    (other_way,) = asked(session_of({"topology": "t", "requiredTopologyLevel": "example.com/zone"}))
    assert found.signature == other_way.signature


def test_a_preferred_level_is_not_a_required_level():
    (found,) = asked(session_of({"topology": "t", "preferredTopologyLevel": "zone"}))
    assert found.level == ""


def test_an_alias_of_an_unknown_topology_stays_unresolved():
    (found,) = asked(session_of({"topology": "gone", "requiredTopologyLevel": "zone"}))
    assert found.level == "zone"


def test_a_group_without_a_topology_asks_for_nothing():
    assert asked(session_of({"requiredTopologyLevel": "zone"})) == []


def test_groups_follow_a_topology_that_changes():
    constraint = {"topology": "t", "requiredTopologyLevel": "zone"}
    (found,) = asked(session_of(constraint, levels=[{"nodeLabel": "other.com/zone", "alias": "zone"}]))
    assert found.level == "other.com/zone"
