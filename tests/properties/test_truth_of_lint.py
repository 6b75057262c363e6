from hypothesis import given
from hypothesis import strategies as st

from kai.lab.sources import judging
from tests.truth.admitting import untruths
from tests.truth.manifests import any_objects


@given(any_objects(), st.booleans())
def test_what_lint_passes_is_let_in_by_the_webhooks(objects, as_json):
    assert list(untruths(objects, as_json=as_json)) == []


def test_a_refusal_that_lint_does_not_name_is_found(monkeypatch):
    head = {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "t"}}
    topology = {**head, "spec": {"levels": [{"nodeLabel": "rack", "alias": "rack"}]}}
    assert list(untruths([topology])) == []
    monkeypatch.setattr(judging, "with_refusals", lambda _, said, __: said)
    (found,) = untruths([topology])
    assert "Topology passes lint, and is refused: invalid topology aliases" in found
