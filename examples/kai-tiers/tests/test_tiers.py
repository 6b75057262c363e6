import pytest
from kai.framework import QueueWeights
from kai.testing import check_plugin, fair_shares, only, session_view

from kai_tiers import Tiers

NODES = {"n1": {"gpu": 10}}
QUEUES = {
    "root": {"quota": 10},
    "research": {"parent": "root", "quota": 2, "labels": {"example.com/tier": "gold"}},
    "web": {"parent": "root", "quota": 2},
}
GROUPS = {
    "train": {"queue": "research", "members": 10, "minimum": 0, "each": {"gpu": 1}},
    "serve": {"queue": "web", "members": 10, "minimum": 0, "each": {"gpu": 1}},
}


def test_the_factor_is_that_of_the_tier():
    weights = only(QueueWeights, Tiers().open(session_view(NODES, GROUPS, QUEUES)))
    assert weights.factors.tolist() == [[4.0] * 3, [1.0] * 3, [1.0] * 3]


def test_a_gold_queue_gets_more_of_the_surplus():
    assert fair_shares(NODES, GROUPS, QUEUES)["research"].gpu == 5
    shares = fair_shares(NODES, GROUPS, QUEUES, plugins=(Tiers(),))
    assert (shares["research"].gpu, shares["web"].gpu) == (7, 3)


def test_a_negative_factor_is_refused():
    with pytest.raises(ValueError, match="factors.gold: found -1, expected 0 or more"):
        Tiers(factors={"gold": -1})


def test_it_keeps_the_laws():
    check_plugin(Tiers, factors={"gold": 3.0})
