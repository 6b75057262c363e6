"""Each voice tells the same reason: one code and one truth, at each moment of a pod's life."""

import attrs
import pytest

from kai.answers.offline.run import simulate
from kai.cli.explaining.subjects import why_left_out
from kai.deciding.explain.codes import BY_CODE
from kai.roles.scheduler.publishing.explanations import GroupAccount, Overall, PodAccount, Waiting, explain
from kai.roles.scheduler.publishing.publisher import CycleOver
from tests.truth.scenes import ELSEWHERE, SCENES
from tests.truth.voices import GROUP, NAMESPACE, Life

STALE = "3 node(s) didn't have enough resources: GPUs"


def begun(code):
    scene = SCENES[code]
    case = scene.case()
    return scene, Life(case, scene.more), None if scene.shown is None else scene.shown(case.objects)


def tell_of_room(life):
    """Have conditions say of the job that there is no room, as an earlier cycle did."""
    pods = [pod for pod in life.case.objects.pods if pod.metadata.name.startswith(f"{GROUP}-")]
    (group,) = [each for each in life.case.objects.pod_groups if each.metadata.name == GROUP]
    names = [(pod.metadata.name, pod.metadata.uid) for pod in pods]
    told = [PodAccount(name=name, namespace=NAMESPACE, uid=uid, message=STALE) for name, uid in names]
    account = GroupAccount(
        name=GROUP,
        namespace=NAMESPACE,
        uid=group.metadata.uid,
        stamps={},
        unschedulable=STALE,
        condition=Waiting(message=STALE),
        pods=tuple(told),
    )
    life.tell(CycleOver(Overall(groups=(account,))))


def test_an_ungrouped_pod_is_reported_as_not_grouped():
    case = SCENES["NoRoom"].case()
    pods = [attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, annotations={})) for pod in case.objects.pods]
    case = attrs.evolve(case, objects=attrs.evolve(case.objects, pods=tuple(pods), pod_groups=()))
    outcome = simulate(case)
    assert explain(outcome.last.snapshot, outcome.last.report, "default").waiting == {"NotGrouped": 1}
    assert why_left_out("", f"{GROUP}-0", case)[0] == f"kai does not place Pod {GROUP}-0: it has no pod group yet"


def test_each_code_is_asked_about_or_has_its_reason():
    assert SCENES.keys() | ELSEWHERE.keys() == BY_CODE.keys()
    assert not SCENES.keys() & ELSEWHERE.keys()


@pytest.mark.parametrize("code", SCENES)
def test_all_voices_tell_one_reason(code):
    scene, life, shown = begun(code)
    said = life.said(shown=shown)
    wire = (scene.wire or code).strip()
    assert (said.why, said.jobs, said.service) == (code, code, code)
    assert wire in said.group or not (wire or said.group)
    assert said.own == (scene.own or wire)
    assert {reason for reason, _ in said.pods} == ({scene.pod} if scene.pod else set())
    assert said.events == scene.events
    assert said.metric.keys() == {scene.metric or wire}
    assert scene.doctor in {"", *said.doctor}
    for text in (said.why_text, *([said.group_text] if wire else ())):
        assert scene.names in text


@pytest.mark.parametrize("code", SCENES)
def test_commands_report_the_reason_before_the_pod_is_linked(code):
    _, life, shown = begun(code)
    said = life.said(shown=shown, is_linked=False)
    assert (said.why, said.jobs) == (code, code)


@pytest.mark.parametrize("code", [code for code in SCENES if code != "Gated"])
def test_conditions_replace_stale_text_with_the_reason(code):
    """A gate is no case: none can be added to a pod that was there without it."""
    scene, life, shown = begun(code)
    tell_of_room(life)
    said = life.said(shown=shown)
    assert STALE not in {said.group_text, *(text for _, text in said.pods)}
    if scene.wire != " ":
        assert (scene.wire or code) in said.group
    assert {reason for reason, _ in said.pods} == {scene.pod or code}


def test_one_pod_is_described_truly_through_all_its_phases():
    """The same pod, told of by all voices: no room, promised, refused again and again, no room again, bound."""
    full, refused = SCENES["NoRoom"].case(), SCENES["BindRefused"]
    leaving = SCENES["HeldForLeaving"].changed(full.objects)
    life, told = Life(full), []

    def ask(shown=None):
        said = life.said(shown=shown)
        told.append((said.why, said.jobs, said.service, said.own, sorted({reason for reason, _ in said.pods})))
        return said

    ask()
    life.changed(leaving)
    ask()
    left = attrs.evolve(full.objects, pods=tuple(pod for pod in full.objects.pods if not pod.spec.node_name))
    life.changed(left)
    assert ask(refused.shown(left)).metric == {"BindRefused": 1}
    life.changed(full.objects)
    ask()
    assert told == [
        ("NoRoom", "NoRoom", "NoRoom", "PodSchedulingErrors", ["Unschedulable"]),
        ("HeldForLeaving", "HeldForLeaving", "HeldForLeaving", "HeldForLeaving", ["HeldForLeaving"]),
        ("BindRefused", "BindRefused", "BindRefused", "BindRefused", ["BindRefused"]),
        ("NoRoom", "NoRoom", "NoRoom", "PodSchedulingErrors", ["Unschedulable"]),
    ]
    bound = tuple(attrs.evolve(pod, spec=attrs.evolve(pod.spec, node_name="n1")) for pod in left.pods)
    life.changed(attrs.evolve(full.objects, pods=bound))
    said = ask()
    assert (said.why, said.jobs, said.service, said.group, said.metric, said.state) == ("", "", "", (), {}, "Running")
