"""What plugins refuse in words of their own reaches people, and a mistake in such words costs nothing else."""

import attrs
import numpy as np
import pytest

from kai.answers.offline.run import simulate
from kai.answers.outcomes.overview import overview
from kai.deciding.explain.messages import explanations, fit_message, group_message, reason_text
from kai.framework import Domains, NodeFilter, Partition, PluginUse, PodFilter, Verdict, Words
from kai.framework.verdict import Reason
from kai.lab.scenarios.scenario import read_short

NO_LICENCE = Words(code="NoLicence", text=lambda facts: f"no licence for {facts['product']} is left")
PLAIN = Words(code="NoLicence", text=lambda _: "for machines", plain=lambda facts: f"buy {facts['product']}.")


@attrs.frozen
class Saying:
    """Opens with what it was made with."""

    extension: object

    def open(self, session):
        return [self.extension]


def told(extension):
    """Return what is said of a job, for people and on the wire, that a plugin with ``extension`` may refuse."""
    queues = {"root": {"quota": 16}, "a": {"parent": "root", "quota": 16}}
    nodes = {"n1": {"gpu": 4}, "n2": {"gpu": 4}}
    groups = {"g": {"queue": "a", "each": {"gpu": 1}}}
    document = {"about": "x", "cluster": {"nodes": nodes}, "queues": queues, "groups": groups, "run": ["allocate"]}
    use = PluginUse(name="mine", plugin=Saying(extension))
    (job,) = overview(simulate(read_short(document, "words"), more=(use,))).jobs
    return job.waiting_reason


@pytest.mark.parametrize(
    ("words", "text"), [(NO_LICENCE, "NoLicence: no licence for ansys is left"), (PLAIN, "NoLicence: buy ansys")]
)
def test_a_pod_filter_refuses_in_its_plugins_words(words, text):
    found = told(PodFilter(lambda _: Verdict.refused(words, product="ansys")))
    assert str(found) == f"PodRefused: its pod is refused by {text}"
    assert found.facts["plugins"] == ("NoLicence",)


def test_such_words_are_on_the_wire_too():
    facts = {"pod": "ns/p", "refusals": (Reason(code=NO_LICENCE, facts={"product": "ansys"}),)}
    text = "Scheduling conditions were not met for pod ns/p:\nNoLicence: no licence for ansys is left.\n"
    assert fit_message(facts) == text


def test_a_node_filter_refusing_all_explains_each_node():
    texts = lambda _, nodes: [f"node(s) had no licence in zone {node}" for node in nodes]  # noqa: E731 - one line tells
    found = told(NodeFilter(lambda _, nodes: np.zeros(len(nodes), np.bool_), explain=texts))
    text = "1 node had no licence in zone 0, 1 node had no licence in zone 1"
    assert str(found) == f"NoRoom: no node takes it now: {text}"


@pytest.mark.parametrize(
    ("write", "found"),
    [
        (lambda facts: facts["absent"], "KeyError: 'absent'"),
        (lambda _: 7, "it returned int, expected str"),
        (lambda _: None, "it returned NoneType, expected str"),
    ],
)
def test_unprintable_plugin_words_are_replaced_by_their_error(write, found):
    words = Words(code="Odd", text=write, details=write)
    text = f"refused; the plugin's text of Odd cannot be made: {found}"
    reason = Reason(code=words)
    assert reason_text(reason) == text
    assert group_message([reason]) == f"PodSchedulingErrors: {text}."
    assert [str(each) for each in explanations([reason])] == [f"PodSchedulingErrors: {text}"]
    assert str(told(PodFilter(lambda _: Verdict((reason,))))) == f"PodRefused: its pod is refused by Odd: {text}"


def test_a_fact_called_missing_does_not_imply_a_topology():
    refused = Verdict.refused(NO_LICENCE, product="ansys", missing=3)
    assert str(told(Domains(lambda *_: Partition(verdict=refused)))) == "NoLicence: no licence for ansys is left"
