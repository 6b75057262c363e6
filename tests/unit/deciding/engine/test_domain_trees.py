"""Groups with a constraint on where their pods are together are placed by a kernel as they are placed the long way."""

import attrs
from hypothesis import given

from kai.deciding.engine.cycle import run_cycle
from kai.facts.model.constraints import TopologyConstraint
from kai.facts.model.groups import SubGroup
from kai.framework import Domains, Partition
from kai.testing import RecordingSink, default_profile_with, snapshot
from tests.properties.strategies import EVERY_SHAPE, RACK, ZONE, snapshots


def tree(minimum, root=None, leaf=None):
    """Return the sub-groups of a group without any of its own; constraints are pairs of required and preferred."""
    root, leaf = (pair and TopologyConstraint("tree", *pair) for pair in (root, leaf))
    return (
        SubGroup(name="", parent=-1, leaf=False, minimum=None, constraint=root),
        SubGroup(name="default", parent=0, leaf=True, minimum=minimum, constraint=leaf),
    )


TREES = (
    tree(2, (RACK, "")),
    tree(3, (ZONE, "")),
    tree(2, ("", RACK)),
    tree(3, (ZONE, RACK)),
    tree(2, ("", ZONE)),
    tree(1, (RACK, "")),
    tree(1, (ZONE, RACK)),
    tree(2, None, (RACK, "")),
    tree(2, (ZONE, ""), (RACK, "")),
    tree(2, (RACK, ZONE)),
    tree(2, ("elsewhere", "")),
    tree(2),
)


def outcome(taken, *plugins, shortcuts):
    """Return what was decided, in order, why the others wait, and what is left."""
    profile = default_profile_with(*plugins)
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, shortcuts=shortcuts))
    sink = RecordingSink()
    report = run_cycle(taken, profile, sink)
    reasons = {group: repr(record) for group, record in report.records.items()}
    return list(sink.decisions), reasons, report.idle.tolist(), report.last_start.tolist()


@given(snapshots(nodes=(2, 7), groups=(1, 5), trees=TREES, shapes=EVERY_SHAPE[:4]))
def test_domain_trees_decide_the_same_with_and_without_shortcuts(taken):
    fast, slow = (repr(outcome(taken, shortcuts=shortcuts)) for shortcuts in (True, False))
    assert fast == slow


@attrs.define
class Counting:
    """The topology plugin, which counts how often it is asked for parts."""

    plugin: object
    asked: int = 0

    def open(self, session):
        (domains,) = self.plugin.open(session)

        def partition(*about):
            self.asked += 1
            return domains.partition(*about)

        return [attrs.evolve(domains, partition=partition)]


class Splitter:
    """Another plugin that splits the nodes for every group, into all of them."""

    def open(self, session):
        del session
        return [Domains(lambda *about: Partition(parts=about[-1:]))]


def parts_asked_for(taken, *others):
    """Return how often the topology plugin is asked for parts by a cycle, and what that decides."""
    profile = default_profile_with(*others)
    counting = None
    uses = []
    for use in profile.plugins:
        if use.name == "topology":
            counting = Counting(use.plugin)
            uses.append(attrs.evolve(use, plugin=counting))
        else:
            uses.append(use)
    profile = attrs.evolve(profile, plugins=tuple(uses), actions=profile.actions[:1])
    sink = RecordingSink()
    run_cycle(taken, profile, sink)
    return counting.asked, sorted((each.pod, each.node) for each in sink.decisions)


def racks(**groups):
    """Return two racks of two nodes and one of one, with groups that have to stay in a rack each."""
    constraint = {"topology": "t", "required": "rack"}
    return snapshot(
        nodes={name: {"gpu": 4, "labels": {"rack": rack}} for name, rack in zip("abcde", "xxyyz", strict=True)},
        topologies={"t": ["rack"]},
        groups={name: {"each": {"gpu": 1}, "topology": constraint, **values} for name, values in groups.items()},
    )


def test_a_gang_in_the_first_domain_asks_no_parts():
    asked, decided = parts_asked_for(racks(first={"members": 6, "minimum": 6}, second={"members": 6, "minimum": 6}))
    assert asked == 0
    assert {node for _, node in decided[:6]} == {0, 1}
    assert {node for _, node in decided[6:]} == {2, 3}


def test_the_tightest_domain_goes_first():
    _, decided = parts_asked_for(racks(first={"members": 3, "minimum": 3}))
    assert {node for _, node in decided} == {4}


def test_pods_beyond_the_minimum_stay_in_the_gangs_rack():
    asked, decided = parts_asked_for(racks(first={"members": 9, "minimum": 6}))
    assert {node for _, node in decided} == {0, 1}
    assert len(decided) == 8
    assert asked == 1  # for the ninth


def test_a_gang_that_fits_nowhere_asks_the_plugin_once():
    asked, decided = parts_asked_for(racks(first={"members": 9, "minimum": 9}))
    assert (asked, decided) == (1, [])


def test_groups_split_by_two_plugins_ask_for_parts():
    taken = racks(first={"members": 6, "minimum": 6})
    alone, both = parts_asked_for(taken), parts_asked_for(taken, Splitter())
    assert alone[0] == 0
    assert both[0] > 0
    assert alone[1] == both[1]
