import attrs
import numpy as np
import pytest

from kai.basics.errors import InputError
from kai.framework import NodeScore
from kai.testing import check_scenario, load_scenario, run_scenario

SHORT = """
about: x
cluster: {nodes: {n1: {gpu: 2}, n2: {gpu: 2}}}
queues: {root: {quota: 4}, a: {parent: root, quota: 4}}
groups: {g: {queue: a, each: {gpu: 1}}}
run: [allocate]
"""


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return path

    return written


def test_a_scenario_is_loaded_run_and_checked(write):
    path = write(SHORT + "expect: {g: allocated on n1}\n")
    assert check_scenario(path) == ()
    assert run_scenario(load_scenario(path)).last.report.counts["binds"] == 1
    assert check_scenario(write(SHORT + "expect: {g: pending}\n")) == ("g: 1 allocated on n1, expected pending",)


def test_a_custom_plugin_answers_in_a_scenario(write):
    @attrs.frozen
    class Last:
        def open(self, session):
            return [NodeScore(lambda _, nodes: nodes * 1e9)]

    outcome = run_scenario(load_scenario(write(SHORT)), Last())
    assert np.unique(outcome.last.report.node[outcome.last.report.node >= 0]).tolist() == [1]


def test_what_is_no_scenario_is_refused(write):
    with pytest.raises(InputError, match="found nothing that is expected"):
        check_scenario(write(SHORT))
    with pytest.raises(InputError, match="found a case without a cluster"):
        load_scenario(write("kind: fairshare\n"))
