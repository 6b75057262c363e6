from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai.actions.consolidate import Consolidate
from kai.actions.preempt import Preempt
from kai.facts.model.constraints import SpreadConstraint
from kai.facts.model.pod import ACTIVE_ALLOCATED, within
from kai.framework import tolerates
from kai.plugins.pod_topology_spread import LACKING, UNEVEN, PodTopologySpread
from tests.unit.plugins.stage import Stage, evict, node, play, pod, ranked, snapshot_of

HOST, ZONE = "kubernetes.io/hostname", "zone"
NODES = (
    node("n1", {ZONE: "east"}),
    node("n2", {ZONE: "east"}),
    node("n3", {ZONE: "west"}),
    node("n4"),
)
WEB, DB = {"app": "web"}, {"app": "db"}


def spread(key=ZONE, skew=1, labels=WEB, **more):
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return constraint | ({} if labels is None else {"labelSelector": {"matchLabels": labels}}) | more


def web(name, on="", constraints=(), **parts):
    return pod(name, on=on, labels=WEB, topologySpreadConstraints=list(constraints), **parts)


def filtering(*manifests, nodes=NODES):
    return Stage.of(PodTopologySpread(), snapshot_of(*nodes, *manifests))


def test_a_pod_goes_where_fewest_of_its_kind_are():
    stage = filtering(web("a-0", "n1"), web("b-0", constraints=[spread()]))
    assert stage.accepting("b-0") == ["n3"]
    assert stage.reasons("b-0") == [UNEVEN, UNEVEN, LACKING]


def test_a_domain_takes_as_many_pods_as_skew_allows():
    there = [web("a-0", "n1"), web("a-1", "n2")]
    assert filtering(*there, web("b-0", constraints=[spread(skew=2)])).accepting("b-0") == ["n3"]
    assert filtering(*there, web("b-0", constraints=[spread(skew=3)])).accepting("b-0") == ["n1", "n2", "n3"]


def test_a_pod_outside_its_own_selector_is_not_counted():
    stage = filtering(web("a-0", "n1"), pod("b-0", labels=DB, topologySpreadConstraints=[spread()]))
    assert stage.accepting("b-0") == ["n1", "n2", "n3"]


def test_all_constraints_must_hold_and_the_first_failure_shows():
    both = [spread(HOST), spread(ZONE)]
    stage = filtering(web("a-0", "n1"), web("b-0", constraints=both))
    assert stage.accepting("b-0") == ["n3"]
    assert stage.reasons("b-0") == [UNEVEN, UNEVEN, LACKING]


def test_a_node_lacking_one_label_counts_for_no_constraint():
    stage = filtering(web("a-0", "n4"), web("b-0", constraints=[spread(HOST), spread(ZONE)]))
    assert stage.accepting("b-0") == ["n1", "n2", "n3"]
    assert filtering(web("a-0", "n4"), web("b-0", constraints=[spread(HOST)])).accepting("b-0") == ["n1", "n2", "n3"]


def test_too_few_domains_make_the_minimum_zero():
    there = [web("a-0", "n1"), web("a-1", "n3")]
    assert filtering(*there, web("b-0", constraints=[spread(minDomains=2)])).accepting("b-0") == ["n1", "n2", "n3"]
    assert filtering(*there, web("b-0", constraints=[spread(minDomains=3)])).accepting("b-0") == []


def test_only_pods_of_the_same_namespace_count():
    stage = filtering(web("a-0", "n1", namespace="other"), web("b-0", constraints=[spread()]))
    assert stage.accepting("b-0") == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("labels", "accepted"),
    [({"app": "web", "hash": "1"}, ["n3"]), ({"app": "web", "hash": "2"}, ["n1", "n2", "n3"]), (WEB, ["n3"])],
)
def test_keys_whose_values_match_tell_revisions_apart(labels, accepted):
    old = pod("a-0", on="n1", labels={"app": "web", "hash": "1"})
    new = pod("b-0", labels=labels, topologySpreadConstraints=[spread(matchLabelKeys=["hash"])])
    assert filtering(old, new).accepting("b-0") == accepted


def test_a_constraint_without_selector_only_needs_the_label():
    stage = filtering(web("a-0", "n1"), web("b-0", constraints=[spread(labels=None)]))
    assert stage.accepting("b-0") == ["n1", "n2", "n3"]
    assert stage.reasons("b-0") == [LACKING]


def test_without_a_selector_keys_whose_values_match_decide():
    stage = filtering(web("a-0", "n1"), web("b-0", constraints=[spread(labels=None, matchLabelKeys=["app", "gone"])]))
    assert stage.accepting("b-0") == ["n3"]


def test_unselected_nodes_form_no_domain_unless_affinity_is_ignored():
    selecting = {"nodeSelector": {ZONE: "east"}}
    there = [web("a-0", "n1"), web("a-1", "n2")]
    honors = web("b-0", constraints=[spread()], **selecting)
    ignores = web("b-0", constraints=[spread(nodeAffinityPolicy="Ignore")], **selecting)
    # That the pod does not select n3 is not for this filter to say.
    assert filtering(*there, honors).accepting("b-0") == ["n1", "n2", "n3"]
    assert filtering(*there, ignores).accepting("b-0") == ["n3"]


def test_required_node_affinity_excludes_nodes_like_a_selector():
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["east"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    stage = filtering(web("a-0", "n1"), web("b-0", constraints=[spread()], affinity={"nodeAffinity": required}))
    assert stage.accepting("b-0") == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("policy", "tolerations", "accepted"),
    [
        (None, [], ["n3"]),
        ("Ignore", [], ["n3"]),
        ("Honor", [], ["n1", "n2", "n3"]),
        ("Honor", [{"key": "hot", "operator": "Exists"}], ["n3"]),
    ],
)
def test_tainted_nodes_make_domains_unless_the_pod_says_otherwise(policy, tolerations, accepted):
    hot = [{"key": "hot", "effect": "NoSchedule"}]
    nodes = (node("n1", {ZONE: "east"}), node("n2", {ZONE: "east"}), node("n3", {ZONE: "west"}, taints=hot))
    more = {} if policy is None else {"nodeTaintsPolicy": policy}
    waiting = web("b-0", constraints=[spread(**more)], tolerations=tolerations)
    assert filtering(web("a-0", "n1"), waiting, nodes=nodes).accepting("b-0") == accepted


def test_pods_on_tainted_nodes_do_not_count_in_domains():
    hot = [{"key": "hot", "effect": "NoSchedule"}]
    nodes = (node("n1", {ZONE: "east"}, taints=hot), node("n2", {ZONE: "east"}), node("n3", {ZONE: "west"}))
    waiting = web("b-0", constraints=[spread(nodeTaintsPolicy="Honor")])
    assert filtering(web("a-0", "n1"), waiting, nodes=nodes).accepting("b-0") == ["n1", "n2", "n3"]


def test_taints_that_repel_nothing_leave_no_node_out():
    mild = [{"key": "hot", "effect": "PreferNoSchedule"}]
    nodes = (node("n1", {ZONE: "east"}), node("n3", {ZONE: "west"}, taints=mild))
    waiting = web("b-0", constraints=[spread(nodeTaintsPolicy="Honor")])
    assert filtering(web("a-0", "n1"), waiting, nodes=nodes).accepting("b-0") == ["n3"]


def test_terminating_finished_and_evicted_pods_do_not_count():
    stage = filtering(
        web("a-0", "n1", leaving=True),
        web("a-1", "n1", status={"phase": "Succeeded"}),
        web("a-2", "n1"),
        web("b-0", constraints=[spread()]),
    )
    assert stage.accepting("b-0") == ["n3"]
    evict(stage.session, "a-2")
    assert stage.accepting("b-0") == ["n1", "n2", "n3"]


def test_a_moving_pod_counts_at_its_target_until_undone():
    stage = filtering(web("a-0", "n1"), web("b-0", constraints=[spread()]))
    session = stage.session
    victim = np.array([stage.row("a-0")], np.int64)
    with session.statement("test") as statement:
        statement.evict(victim)
        assert statement.place_pods(victim, np.array([2], np.int64), session.no_extra, promise=True) == 1
        assert stage.accepting("b-0") == ["n1", "n2"]
    assert stage.accepting("b-0") == ["n3"]


def test_nothing_is_asked_about_wishes_and_pods_without_constraints():
    wish = spread(whenUnsatisfiable="ScheduleAnyway")
    assert filtering(web("a-0", "n1"), web("b-0", constraints=[wish])).is_silent
    stage = filtering(web("a-0", "n1"), web("b-0", constraints=[wish, spread()]), web("c-0"))
    assert [stage.is_concerned(name) for name in ("a-0", "b-0", "c-0")] == [False, True, False]
    assert stage.accepting("b-0") == ["n3"]


@pytest.mark.parametrize("wrong", [{"maxSkew": 0}, {"maxSkew": -1}, {"topologyKey": ""}, {"whenUnsatisfiable": "x"}])
def test_an_invalid_constraint_is_ignored(wrong):
    assert filtering(web("a-0", "n1"), web("b-0", constraints=[spread() | wrong])).is_silent


@pytest.mark.parametrize("fewest", [0, -3])
def test_an_invalid_minimum_of_domains_counts_as_one(fewest):
    stage = filtering(web("a-0", "n1"), web("b-0", constraints=[spread(minDomains=fewest)]))
    assert stage.accepting("b-0") == ["n3"]


# --------------------------------------------------------------------------------------------------------- whole cycles


def test_a_gang_is_spread_as_it_is_placed():
    gang = [web(f"a-{at}", constraints=[spread()]) for at in range(4)]
    played = play(PodTopologySpread(), snapshot_of(*NODES, *gang, minimum=4))
    assert sorted(played.bound.values()) == ["n1", "n1", "n3", "n3"]


def test_a_gang_that_cannot_spread_is_not_placed():
    full = pod("z-0", on="n3", requests={"cpu": "64"})
    gang = [web(f"a-{at}", constraints=[spread()]) for at in range(4)]
    played = play(PodTopologySpread(), snapshot_of(*NODES, full, *gang, minimum=4))
    assert played.bound == {}
    assert (2, UNEVEN) in [(count, reason.text) for count, reason in played.waiting_for("a").counts]


def test_pods_without_constraints_count_once_they_are_placed():
    plain = pod("a-0", labels=WEB)
    played = play(PodTopologySpread(), snapshot_of(*NODES, plain, web("b-0", constraints=[spread()])))
    assert played.bound == {"a-0": "n1", "b-0": "n3"}


@pytest.mark.parametrize(("constraints", "evicted"), [([spread()], ["low-0"]), ([], [])])
def test_a_victim_is_evicted_unless_it_could_return(constraints, evicted):
    nodes = (node("n1", {ZONE: "east"}), node("n3", {ZONE: "west"}))
    manifests = (
        web("low-0", "n1", constraints, requests={"cpu": "10"}),
        pod("full-0", on="n3", requests={"cpu": "64"}),
        web("high-0", constraints=[spread()]),
    )
    snapshot = ranked(snapshot_of(*nodes, *manifests), low=40, full=70, high=60)
    assert play(PodTopologySpread(), snapshot, actions=(Preempt(),)).evicted == evicted


def test_a_vain_search_does_not_exclude_equally_shaped_pods():
    nodes = (node("n1", {ZONE: "east"}), node("n3", {ZONE: "west"}))
    manifests = (
        web("a-0", "n1", requests={"cpu": "1"}),
        pod("low-0", on="n1", requests={"cpu": "63"}),
        pod("full-0", on="n3", requests={"cpu": "64"}),
        web("b-0", constraints=[spread()]),
        pod("c-0", labels=DB, topologySpreadConstraints=[spread()]),
    )
    snapshot = ranked(snapshot_of(*nodes, *manifests), a=70, full=70, low=40, b=60, c=60)
    assert len({each.signature for each in snapshot.pods if each.name in {"b-0", "c-0"}}) == 1
    assert play(PodTopologySpread(), snapshot, actions=(Preempt(),)).evicted == ["low-0"]


def test_a_pod_that_is_moved_is_spread_as_well():
    nodes = (
        node("n1", {ZONE: "east"}, allocatable={"cpu": "4"}),
        node("n2", {ZONE: "west"}, allocatable={"cpu": "2"}),
        node("n3", {ZONE: "east"}, allocatable={"cpu": "2"}),
        node("n4", {ZONE: "west"}, allocatable={"cpu": "2"}),
    )
    manifests = (
        pod("a-0", requests={"cpu": "4"}),
        web("b-0", "n1", [spread()], requests={"cpu": "2"}),
        web("c-0", "n4", requests={"cpu": "1"}),
    )
    played = play(PodTopologySpread(), snapshot_of(*nodes, *manifests), actions=(Consolidate(),))
    (moved,) = [row for row, each in enumerate(played.session.snapshot.pods) if each.name == "b-0"]
    assert played.evicted == ["b-0"]
    assert played.session.snapshot.nodes[played.session.columns.node[moved]].name == "n3"


# -------------------------------------------------------------------------------------- the same, pod by pod and slowly


class Slow:
    """What the constraints mean, asked of every node and pod: the plain form of what the plugin does with masks."""

    def __init__(self, session) -> None:
        self.snapshot, self.columns = session.snapshot, session.columns

    def there(self) -> Iterator[tuple[int, int]]:
        for row in range(len(self.snapshot.pods)):
            if within(int(self.columns.status[row]), ACTIVE_ALLOCATED) and self.columns.node[row] >= 0:
                yield row, int(self.columns.node[row])

    def demands(self, pod):
        return self.snapshot.shapes[self.snapshot.pod_shape[pod]].constraints

    def labels(self, node):
        return self.snapshot.nodes[node].labels

    def means(self, constraint: SpreadConstraint, pod: int, other: int) -> bool:
        mine, theirs = self.snapshot.pods[pod], self.snapshot.pods[other]
        keys = [key for key in constraint.match_label_keys if key in mine.labels]
        if constraint.selector is None and not keys:
            return False
        if constraint.selector is not None and not constraint.selector.matches(theirs.labels):
            return False
        alike = all(theirs.labels.get(key) == mine.labels[key] for key in keys)
        return mine.namespace == theirs.namespace and alike

    def counts(self, constraint: SpreadConstraint, pod: int, node: int) -> bool:
        mine = self.demands(pod)
        if any(each.topology_key not in self.labels(node) for each in mine.spread):
            return False
        selected = all(self.labels(node).get(key) == value for key, value in mine.node_selector)
        if constraint.honors_affinity and not selected:
            return False
        taints = [each for each in self.snapshot.nodes[node].taints if each.effect in {"NoSchedule", "NoExecute"}]
        put_up_with = all(any(tolerates(each, taint) for each in mine.tolerations) for taint in taints)
        return put_up_with or not constraint.honors_taints

    def accepts(self, pod: int, node: int) -> bool:
        return all(self.allows(constraint, pod, node) for constraint in self.demands(pod).spread)

    def allows(self, constraint: SpreadConstraint, pod: int, node: int) -> bool:
        key = constraint.topology_key
        if key not in self.labels(node):
            return False
        held = {
            self.labels(each)[key]: 0 for each in range(len(self.snapshot.nodes)) if self.counts(constraint, pod, each)
        }
        for other, where in self.there():
            if self.counts(constraint, pod, where) and self.means(constraint, pod, other):
                held[self.labels(where)[key]] += 1
        fewest = min(held.values()) if len(held) >= constraint.min_domains else 0
        own = self.means(constraint, pod, pod)
        return held.get(self.labels(node)[key], 0) + own - fewest <= constraint.max_skew


def draw_constraint(draw, key):
    labels = draw(st.sampled_from([{"app": "x"}, {"app": "x", "tier": "y"}, {}, None]))
    more = {
        "minDomains": draw(st.sampled_from([None, 1, 2, 3])),
        "matchLabelKeys": draw(st.sampled_from([[], ["app"], ["tier", "gone"]])),
        "nodeAffinityPolicy": draw(st.sampled_from([None, "Honor", "Ignore"])),
        "nodeTaintsPolicy": draw(st.sampled_from([None, "Honor", "Ignore"])),
        "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"])),
    }
    return spread(key, draw(st.integers(1, 2)), labels, **{name: value for name, value in more.items() if value})


@st.composite
def clusters(draw):
    nodes = []
    for at in range(4):
        labels = {ZONE: draw(st.sampled_from(["e", "w", "s"]))} if draw(st.integers(0, 5)) else {}
        labels |= {"disk": "fast"} if draw(st.booleans()) else {}
        taints = [{"key": "hot", "effect": draw(st.sampled_from(["NoSchedule", "PreferNoSchedule"]))}]
        nodes.append(node(f"n{at}", labels, taints=taints if draw(st.booleans()) else []))
    pods = []
    for at in range(draw(st.integers(3, 8))):
        keys = draw(st.lists(st.sampled_from([HOST, ZONE]), unique=True))
        pods.append(
            pod(
                f"p-{at}",
                on=draw(st.sampled_from(["", "n0", "n1", "n2", "n3"])),
                namespace=draw(st.sampled_from(["default", "default", "other"])),
                labels={key: draw(st.sampled_from(["x", "x", "y"])) for key in ("app", "tier") if draw(st.booleans())},
                leaving=draw(st.integers(0, 6)) == 0,
                topologySpreadConstraints=[draw_constraint(draw, key) for key in keys],
                nodeSelector=draw(st.sampled_from([{}, {"disk": "fast"}])),
                tolerations=draw(st.sampled_from([[], [{"key": "hot", "operator": "Exists"}]])),
            )
        )
    return snapshot_of(*nodes, *pods)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.integers(0, 7), st.integers(0, 3))
def test_masks_are_what_counting_pod_by_pod_gives(snapshot, victim, target):
    stage = Stage.of(PodTopologySpread(), snapshot)
    session, slow = stage.session, Slow(stage.session)

    def agree() -> list[list[str]]:
        found = []
        for row, each in enumerate(snapshot.pods):
            expected = [f"n{where}" for where in range(4) if slow.accepts(row, where)]
            if stage.answers.node_filter is None or not stage.is_concerned(each.name):
                assert not slow.demands(row).spread
            else:
                assert stage.accepting(each.name) == expected
            found.append(expected)
        return found

    before = agree()
    row = np.array([victim % len(snapshot.pods)], np.int64)
    with session.statement("test") as statement:
        if within(int(session.columns.status[row[0]]), ACTIVE_ALLOCATED):
            statement.evict(row)
            agree()
            statement.place_pods(row, np.array([target], np.int64), session.no_extra, promise=True)
            agree()
    assert agree() == before


def test_nodes_are_matched_once_per_policy(monkeypatch):
    compared = []

    def counting(toleration, taint):
        compared.append(taint)
        return tolerates(toleration, taint)

    monkeypatch.setattr("kai.plugins.pod_topology_spread.tolerates", counting)
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    nodes = (node("n1", {ZONE: "east"}), node("n2", {ZONE: "west"}, taints=[taint]))
    many = [spread(f"key-{at}", nodeTaintsPolicy="Honor") for at in range(50)]
    stage = filtering(
        web("a-0", constraints=[*many, spread(nodeTaintsPolicy="Honor")], tolerations=[{"key": "other"}]), nodes=nodes
    )
    assert stage.accepting("a-0") == []
    assert len(compared) == 1
