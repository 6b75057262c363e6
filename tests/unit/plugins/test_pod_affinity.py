from collections.abc import Iterator

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai.api.cluster_objects import collect
from kai.api.codec.structuring import structure_all
from kai.facts.model.constraints import AffinityTerm
from kai.facts.model.pod import ACTIVE_USED, Status, within
from kai.framework.objects import LabelTable
from kai.intake import Intake
from kai.plugins.pod_affinity import KEPT_OFF, NOT_AWAY, NOT_NEAR, PodAffinity, PodAffinityScore
from tests.unit.plugins.stage import NOW, Stage, evict, groups_of, node, play, pod, snapshot_of

HOST, ZONE = "kubernetes.io/hostname", "zone"
NODES = (
    node("n1", {ZONE: "east"}),
    node("n2", {ZONE: "east"}),
    node("n3", {ZONE: "west"}),
    node("n4"),
)
WEB, DB = {"app": "web"}, {"app": "db"}


def term(labels, key=HOST, **more):
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key} | more


def near(*terms):
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def away(*terms):
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def prefers(kind, *weighted):
    wishes = [{"weight": weight, "podAffinityTerm": wish} for weight, wish in weighted]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}


def namespace(name, **labels):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def filtering(*manifests):
    return Stage.of(PodAffinity(), snapshot_of(*NODES, *manifests))


def scoring(*manifests):
    return Stage.of(PodAffinityScore(), snapshot_of(*NODES, *manifests))


# ------------------------------------------------------------------------------------------------------ required terms


def test_affinity_keeps_a_pod_in_the_matching_domains():
    stage = filtering(pod("a-0", on="n1", labels=DB), pod("b-0", affinity=near(term(DB, ZONE))))
    assert stage.accepting("b-0") == ["n1", "n2"]
    assert stage.reasons("b-0") == [NOT_NEAR] * 2


def test_affinity_to_nobody_refuses_every_node():
    assert filtering(pod("b-0", affinity=near(term(DB, ZONE)))).accepting("b-0") == []


def test_the_first_pod_of_a_series_needs_no_match():
    stage = filtering(pod("b-0", labels=WEB, affinity=near(term(WEB, ZONE))))
    assert stage.accepting("b-0") == ["n1", "n2", "n3"]


def test_a_matching_pod_anywhere_ends_the_first_pods_exception():
    stage = filtering(pod("a-0", on="n3", labels=WEB), pod("b-0", labels=WEB, affinity=near(term(WEB, ZONE))))
    assert stage.accepting("b-0") == ["n3"]


def test_a_match_on_an_unlabelled_node_has_no_domain():
    stage = filtering(pod("a-0", on="n4", labels=WEB), pod("b-0", labels=WEB, affinity=near(term(WEB, ZONE))))
    assert stage.accepting("b-0") == ["n1", "n2", "n3"]


def test_only_pods_that_match_every_term_count():
    both = near(term({"app": "db"}, ZONE), term({"tier": "gold"}, HOST))
    stage = filtering(
        pod("a-0", on="n1", labels=DB),
        pod("a-1", on="n2", labels={"tier": "gold"}),
        pod("a-2", on="n3", labels={"app": "db", "tier": "gold"}),
        pod("b-0", affinity=both),
    )
    assert stage.accepting("b-0") == ["n3"]


def test_anti_affinity_keeps_a_pod_out_of_domains():
    stage = filtering(pod("a-0", on="n1", labels=DB), pod("b-0", affinity=away(term(DB, ZONE))))
    assert stage.accepting("b-0") == ["n3", "n4"]
    assert stage.reasons("b-0") == [NOT_AWAY] * 2


@pytest.mark.parametrize(
    ("keeps_off", "alone"),
    [
        (term(WEB), True),
        (term(DB), False),
        (term(WEB, ZONE), False),  # n4 is in no zone, and takes any number
    ],
)
def test_only_pods_repelling_themselves_per_node_are_single(keeps_off, alone):
    stage = filtering(pod("a-0", labels=WEB, affinity=away(keeps_off)), pod("b-0", labels=DB))
    assert [stage.is_single("a-0"), stage.is_single("b-0")] == [alone, False]


def test_each_anti_affinity_term_refuses_by_itself():
    stage = filtering(
        pod("a-0", on="n1", labels=DB),
        pod("a-1", on="n4", labels=WEB),
        pod("b-0", affinity=away(term(DB, ZONE), term(WEB, HOST))),
    )
    assert stage.accepting("b-0") == ["n3"]


def test_pods_that_are_there_keep_others_off():
    stage = filtering(pod("a-0", on="n1", affinity=away(term(WEB, ZONE))), pod("b-0", labels=WEB), pod("c-0"))
    assert stage.accepting("b-0") == ["n3", "n4"]
    assert stage.reasons("b-0") == [KEPT_OFF] * 2
    assert not stage.is_concerned("c-0")


def test_the_reason_is_the_first_in_the_peers_order():
    apart = near(term(DB, HOST)) | away(term(WEB, HOST))
    stage = filtering(
        pod("a-0", on="n1", labels=DB),
        pod("a-1", on="n1", labels=WEB),
        pod("a-2", on="n2", labels=WEB),
        pod("b-0", affinity=apart),
    )
    assert stage.reasons("b-0") == [NOT_AWAY, NOT_NEAR, NOT_NEAR, NOT_NEAR]


def test_a_term_selects_only_its_own_namespace_by_default():
    there = pod("a-0", on="n1", labels=DB, namespace="other")
    assert filtering(there, pod("b-0", affinity=away(term(DB)))).accepting("b-0") == ["n1", "n2", "n3", "n4"]
    named = away(term(DB, namespaces=["other"]))
    assert filtering(there, pod("b-0", affinity=named)).accepting("b-0") == ["n2", "n3", "n4"]


@pytest.mark.parametrize(("selector", "reaches"), [({}, True), ({"matchLabels": {"team": "x"}}, True), (None, False)])
def test_a_namespace_selector_chooses_by_labels_of_namespaces(selector, reaches):
    more = {} if selector is None else {"namespaceSelector": selector}
    stage = filtering(
        namespace("other", team="x"),
        pod("a-0", on="n1", labels=DB, namespace="other"),
        pod("b-0", affinity=away(term(DB, **more))),
    )
    assert ("n1" not in stage.accepting("b-0")) == reaches


def test_a_namespace_selector_passes_over_namespaces_with_other_labels():
    stage = filtering(
        namespace("other", team="y"),
        pod("a-0", on="n1", labels=DB, namespace="other"),
        pod("b-0", affinity=away(term(DB, namespaceSelector={"matchLabels": {"team": "x"}}))),
    )
    assert stage.accepting("b-0") == ["n1", "n2", "n3", "n4"]


def test_terminating_and_evicted_pods_repel_none_but_are_awaited():
    stage = filtering(
        pod("a-0", on="n1", labels=DB, leaving=True),
        pod("a-1", on="n3", labels=DB),
        pod("b-0", affinity=away(term(DB, HOST))),
    )
    assert (stage.accepting("b-0"), stage.waiting_on("b-0")) == (["n1", "n2", "n4"], ["n1"])
    evict(stage.session, "a-1")
    assert (stage.accepting("b-0"), stage.waiting_on("b-0")) == (["n1", "n2", "n3", "n4"], ["n1", "n3"])


def test_a_running_pods_anti_affinity_lasts_until_eviction():
    stage = filtering(pod("a-0", on="n1", affinity=away(term(DB, ZONE))), pod("b-0", labels=DB))
    assert stage.accepting("b-0") == ["n3", "n4"]
    evict(stage.session, "a-0")
    assert (stage.accepting("b-0"), stage.waiting_on("b-0")) == (["n1", "n2", "n3", "n4"], ["n1", "n2"])


def test_a_pod_that_does_not_end_keeps_others_away():
    stuck = pod("a-0", on="n1", labels=DB, metadata={"deletionTimestamp": "2026-01-01T11:00:00Z"})
    assert filtering(stuck, pod("b-0", affinity=away(term(DB, HOST)))).accepting("b-0") == ["n2", "n3", "n4"]


def test_terminating_pods_satisfy_affinity_and_evicted_ones_do_not():
    stage = filtering(
        pod("a-0", on="n1", labels=DB, leaving=True),
        pod("a-1", on="n3", labels=DB),
        pod("b-0", affinity=near(term(DB, HOST))),
    )
    assert stage.accepting("b-0") == ["n1", "n3"]
    with stage.session.statement("test") as statement:
        statement.evict(np.array([stage.row("a-1")], np.int64))
        assert stage.accepting("b-0") == ["n1"]


def test_a_moving_pod_blocks_its_target_and_is_awaited():
    stage = filtering(pod("a-0", on="n1", labels=DB), pod("b-0", affinity=away(term(DB, HOST))))
    session = stage.session
    victim = np.array([stage.row("a-0")], np.int64)
    with session.statement("test") as statement:
        statement.evict(victim)
        assert statement.place_pods(victim, np.array([2], np.int64), session.no_extra, promise=True) == 1
        assert (stage.accepting("b-0"), stage.waiting_on("b-0")) == (["n1", "n2", "n4"], ["n1"])
    assert (stage.accepting("b-0"), stage.waiting_on("b-0")) == (["n2", "n3", "n4"], [])


def test_finished_pods_do_not_count():
    done = pod("a-0", on="n1", labels=DB, status={"phase": "Succeeded"})
    assert filtering(done, pod("b-0", affinity=away(term(DB, ZONE)))).accepting("b-0") == ["n1", "n2", "n3", "n4"]


def test_pods_without_any_bearing_term_are_not_concerned():
    stage = filtering(pod("a-0", on="n1", labels=DB), pod("b-0", affinity=near(term(DB, ZONE))), pod("c-0", labels=WEB))
    # That others want to be near db pods does not restrict db pods themselves.
    assert [stage.is_concerned(name) for name in ("a-0", "b-0", "c-0")] == [False, True, False]


def test_nothing_is_asked_where_no_pod_has_terms():
    assert filtering(pod("a-0", on="n1", labels=DB)).is_silent


def test_a_gang_with_anti_affinity_takes_one_node_each():
    gang = [pod(f"a-{at}", labels=WEB, affinity=away(term(WEB))) for at in range(4)]
    played = play(PodAffinity(), snapshot_of(*NODES, *gang, minimum=4))
    assert played.bound == {f"a-{at}": f"n{at + 1}" for at in range(4)}


def test_a_gang_exceeding_the_nodes_is_not_placed():
    gang = [pod(f"a-{at}", labels=WEB, affinity=away(term(WEB))) for at in range(5)]
    played = play(PodAffinity(), snapshot_of(*NODES, *gang, minimum=5))
    assert played.bound == {}
    assert [(count, reason.text) for count, reason in played.waiting_for("a").counts] == [(4, NOT_AWAY)]


def test_a_series_follows_its_first_pod_into_one_zone():
    crowd = [pod(f"a-{at}", labels=WEB, affinity=near(term(WEB, ZONE)), requests={"cpu": "40"}) for at in range(3)]
    played = play(PodAffinity(), snapshot_of(*NODES, *crowd))
    assert played.bound == {"a-0": "n1", "a-1": "n2"}


# ----------------------------------------------------------------------------------------------------- preferred terms

MILLION = 1_000_000.0


def test_a_preferred_term_scores_its_weight_per_matching_pod():
    stage = scoring(
        pod("a-0", on="n1", labels=DB),
        pod("a-1", on="n2", labels=DB),
        pod("a-2", on="n3", labels=DB),
        pod("b-0", affinity=prefers("podAffinity", (3, term(DB, ZONE)))),
    )
    assert stage.scores("b-0") == [6 * MILLION, 6 * MILLION, 3 * MILLION, 0]


def test_preferred_anti_affinity_costs():
    stage = scoring(
        pod("a-0", on="n1", labels=DB), pod("b-0", affinity=prefers("podAntiAffinity", (2, term(DB, ZONE))))
    )
    assert stage.scores("b-0") == [-2 * MILLION, -2 * MILLION, 0, 0]


def test_terms_over_several_labels_add_up():
    wishes = prefers("podAffinity", (1, term(DB, ZONE)), (10, term(DB, HOST)))
    stage = scoring(pod("a-0", on="n1", labels=DB), pod("b-0", affinity=wishes))
    assert stage.scores("b-0") == [11 * MILLION, MILLION, 0, 0]


def test_what_pods_that_are_there_prefer_counts_as_well():
    stage = scoring(
        pod("a-0", on="n1", affinity=prefers("podAffinity", (5, term(WEB, ZONE)))),
        pod("a-1", on="n3", affinity=prefers("podAntiAffinity", (7, term(WEB, ZONE)))),
        pod("b-0", labels=WEB),
        pod("c-0"),
    )
    assert stage.scores("b-0") == [5 * MILLION, 5 * MILLION, -7 * MILLION, 0]
    assert not stage.is_concerned("c-0")


def test_required_terms_of_running_pods_score_nothing():
    assert scoring(pod("a-0", on="n1", affinity=near(term(WEB, ZONE))), pod("b-0", labels=WEB)).is_silent


def test_the_weight_is_an_option_of_the_score():
    snapshot = snapshot_of(
        *NODES, pod("a-0", on="n3", labels=DB), pod("b-0", affinity=prefers("podAffinity", (3, term(DB, HOST))))
    )
    assert Stage.of(PodAffinityScore(weight=0.5), snapshot).scores("b-0") == [0, 0, 1.5, 0]


def test_a_moved_pod_attracts_to_both_of_its_nodes():
    stage = scoring(pod("a-0", on="n1", labels=DB), pod("b-0", affinity=prefers("podAffinity", (1, term(DB, HOST)))))
    session = stage.session
    victim = np.array([stage.row("a-0")], np.int64)
    with session.statement("test") as statement:
        statement.evict(victim)
        statement.place_pods(victim, np.array([2], np.int64), session.no_extra, promise=True)
        assert stage.scores("b-0") == [MILLION, 0, MILLION, 0]


def test_a_cycle_follows_preferences_over_names_of_nodes():
    snapshot = snapshot_of(
        *NODES,
        pod("a-0", on="n3", labels=DB),
        pod("b-0", affinity=prefers("podAffinity", (1, term(DB, ZONE)))),
        pod("c-0", affinity=prefers("podAntiAffinity", (1, {"labelSelector": {}, "topologyKey": ZONE}))),
    )
    assert play(PodAffinityScore(), snapshot).bound == {"b-0": "n3", "c-0": "n1"}


# -------------------------------------------------------------------------------------- the same, pod by pod and slowly


class Slow:
    """What the terms mean, asked of every pair of pods: the plain form of what the plugin does with masks."""

    def __init__(self, session) -> None:
        self.snapshot, self.columns = session.snapshot, session.columns

    def there(self, *, leaving: bool) -> Iterator[tuple[int, int]]:
        for row in range(len(self.snapshot.pods)):
            status = int(self.columns.status[row])
            if within(status, ACTIVE_USED) and self.columns.node[row] >= 0 and leaving == (status == Status.RELEASING):
                yield row, int(self.columns.node[row])
            if leaving:
                yield from ((row, int(left) - 1) for left in self.columns.left[row] if left)

    def everywhere(self) -> Iterator[tuple[int, int]]:
        yield from self.there(leaving=False)
        yield from self.there(leaving=True)

    def company(self) -> Iterator[tuple[int, int]]:
        yield from self.there(leaving=False)
        yield from (each for each in self.there(leaving=True) if not self.columns.evicted_status[each[0]])

    def demands(self, pod):
        return self.snapshot.shapes[self.snapshot.pod_shape[pod]].constraints

    def means(self, wish: AffinityTerm, pod: int) -> bool:
        each = self.snapshot.pods[pod]
        return wish.selects(each.namespace, each.labels, self.snapshot.catalog.namespaces)

    def together(self, key: str, one: int, other: int) -> bool:
        left, right = self.snapshot.nodes[one].labels.get(key), self.snapshot.nodes[other].labels.get(key)
        return left is not None and left == right

    def accepts(self, pod: int, node: int) -> bool:
        mine = self.demands(pod)
        wanted = [
            (other, where) for other, where in self.company() if all(self.means(wish, other) for wish in mine.affinity)
        ]
        if mine.affinity and not all(wish.topology_key in self.snapshot.nodes[node].labels for wish in mine.affinity):
            return False
        known = [
            (wish, where)
            for _, where in wanted
            for wish in mine.affinity
            if wish.topology_key in self.snapshot.nodes[where].labels
        ]
        first = not known and all(self.means(wish, pod) for wish in mine.affinity)
        if not first:
            for wish in mine.affinity:
                if not any(self.together(wish.topology_key, node, where) for _, where in wanted):
                    return False
        return not self.keeps_away(pod, node, leaving=False)

    def keeps_away(self, pod: int, node: int, *, leaving: bool) -> bool:
        mine = self.demands(pod)
        for other, where in self.there(leaving=leaving):
            if any(self.means(t, other) and self.together(t.topology_key, node, where) for t in mine.anti_affinity):
                return True
            theirs = self.demands(other).anti_affinity
            if any(self.means(t, pod) and self.together(t.topology_key, node, where) for t in theirs):
                return True
        return False

    def score(self, pod: int, node: int) -> int:
        mine, total = self.demands(pod), 0
        for other, where in self.everywhere():
            theirs = self.demands(other)
            for sign, wishes, meant in (
                (1, mine.preferred_affinity, other),
                (-1, mine.preferred_anti_affinity, other),
                (1, theirs.preferred_affinity, pod),
                (-1, theirs.preferred_anti_affinity, pod),
            ):
                total += sum(
                    sign * t.weight
                    for t in wishes
                    if self.means(t, meant) and self.together(t.topology_key, node, where)
                )
        return total


def draw_term(draw):
    labels = {draw(st.sampled_from(["app", "tier"])): draw(st.sampled_from(["x", "y"]))}
    scope = draw(st.sampled_from([{}, {"namespaces": ["other"]}, {"namespaceSelector": {}}]))
    return term(labels, draw(st.sampled_from([HOST, ZONE])), **scope)


@st.composite
def clusters(draw):
    nodes = [node(f"n{at}", draw(st.sampled_from([{ZONE: "e"}, {ZONE: "w"}, {}]))) for at in range(4)]
    pods = []
    for at in range(draw(st.integers(2, 6))):
        affinity = {}
        if draw(st.booleans()):
            affinity |= near(*(draw_term(draw) for _ in range(draw(st.integers(1, 2)))))
        if draw(st.booleans()):
            affinity |= away(*(draw_term(draw) for _ in range(draw(st.integers(1, 2)))))
        for kind in ("podAffinity", "podAntiAffinity"):
            if draw(st.booleans()):
                wishes = prefers(kind, (draw(st.integers(1, 9)), draw_term(draw)))[kind]
                affinity[kind] = affinity.get(kind, {}) | wishes
        pods.append(
            pod(
                f"p-{at}",
                on=draw(st.sampled_from(["", "n0", "n1", "n2", "n3"])),
                namespace=draw(st.sampled_from(["default", "other"])),
                labels={key: draw(st.sampled_from(["x", "y"])) for key in ("app", "tier") if draw(st.booleans())},
                affinity=affinity,
            )
        )
    return snapshot_of(*nodes, *pods)


ALL = range(4)


def asks_about(stage, name):
    is_open = stage.answers.node_filter is not None or stage.answers.node_score is not None
    return is_open and stage.is_concerned(name)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.integers(0, 5), st.integers(0, 3))
def test_masks_and_scores_equal_those_of_pairwise_comparison(snapshot, victim, target):
    required, preferred = Stage.of(PodAffinity(), snapshot), Stage.of(PodAffinityScore(), snapshot)
    for stage in (required, preferred):
        session = stage.session
        row = np.array([victim % len(snapshot.pods)], np.int64)
        with session.statement("test") as statement:
            if session.columns.node[row[0]] >= 0:
                statement.evict(row)
                statement.place_pods(row, np.array([target], np.int64), session.no_extra, promise=True)
            slow = Slow(session)
            for at, each in enumerate(snapshot.pods):
                if not asks_about(stage, each.name):
                    assert stage is preferred or all(slow.accepts(at, where) for where in ALL)
                    assert stage is required or not any(slow.score(at, where) for where in ALL)
                elif stage is required:
                    accepting = [where for where in ALL if slow.accepts(at, where)]
                    waiting = [f"n{where}" for where in accepting if slow.keeps_away(at, where, leaving=True)]
                    assert stage.accepting(each.name) == [f"n{where}" for where in accepting]
                    assert stage.waiting_on(each.name) == waiting
                else:
                    assert stage.scores(each.name) == [slow.score(at, where) * MILLION for where in ALL]


# ---------------------------------------------------------------------------------------------------------------- cost


def test_terms_of_running_pods_are_resolved_once_across_cycles(monkeypatch):
    """One pod may carry a thousand terms, for as long as it runs."""
    asked, selects = [], LabelTable.selects

    def counting(table, selector):
        asked.append(selector)
        return selects(table, selector)

    monkeypatch.setattr(LabelTable, "selects", counting)
    carried = away(*(term({"app": f"x{at}"}) for at in range(50)), term(WEB))
    pods = (pod("a-0", on="n1", affinity=carried), pod("b-0", labels=WEB), pod("c-0", labels=WEB))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    settings_ = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}
    everything = collect(structure_all([*NODES, *pods, *groups_of(pods), space, settings_]).objects)
    intake = Intake()
    fewer = attrs.evolve(everything, pods=everything.pods[:2], config_maps=())
    for objects, resolved in ((fewer, 51), (everything, 0)):
        asked.clear()
        taken = intake.take(objects, NOW)
        stages = Stage.of(PodAffinity(), taken), Stage.of(PodAffinityScore(), taken)
        assert stages[0].accepting("b-0") == ["n2", "n3", "n4"]
        assert stages[1].is_silent
        assert len(asked) == resolved
