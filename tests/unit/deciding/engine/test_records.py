import numpy as np
import pytest

from kai.deciding.engine.records import GroupRecord, Records
from kai.framework.verdict import Code, Reason
from kai.testing import snapshot
from kai.testing.views import open_session

FULL = Reason(code=Code.OVER_LIMIT, facts={"queue": "a"})
NO_NODE = Reason(code=Code.NO_NODE, facts={"histogram": "all full", "pod": "default/one-0", "placed": 3})
SHY = Reason(code=Code.NOT_ELIGIBLE, facts={"queue": 0})


@pytest.fixture
def session():
    groups = {name: {"members": 2, "minimum": 2, "each": {"gpu": 1}} for name in ("one", "three", "two")}
    return open_session(snapshot({"n": {"gpu": 1}}, groups))


@pytest.fixture
def records(session):
    return Records(session.snapshot, session.facts.groups)


def refuse(records, session, reason, *groups, pods=True):
    rows = np.array(groups, np.int64)
    first = np.array([session.portion(group).pods()[0] for group in groups]) if pods else np.full(len(groups), -1)
    records.refuse_alike(rows, first, np.zeros(len(groups), np.bool_), reason)


def test_nothing_is_known_of_groups_that_were_not_refused(records):
    assert not records
    assert list(records) == []
    assert records.get(0) is None
    with pytest.raises(KeyError):
        records[7]


def test_groups_refused_for_another_groups_reason_have_own_names(records, session):
    refuse(records, session, NO_NODE, 0, 2)
    assert list(records) == [0, 2]
    assert len(records) == 2
    for group in (0, 2):
        record = records[group]
        pod = int(session.portion(group).pods()[0])
        assert [reason.facts["pod"] for reason in record.reasons] == [session.snapshot.pods[pod].key]
        assert record.reasons[0].facts | {"pod": ""} == {
            "histogram": "all full",
            "pod": "",
            "placed": 0,
            "minimum": 2,
            "subgroup": "default",
            "gang": True,
            "single_leaf": True,
            "satisfied": False,
            "pod_row": pod,
        }
        assert record.pods == {pod: record.reasons[0]}


def test_full_queues_share_one_reason_without_pods(records, session):
    refuse(records, session, FULL, 1, 2, pods=False)
    assert records[1] == records[2] == GroupRecord(reasons=[FULL])


def test_a_new_reason_is_added_to_known_ones_once(records, session):
    records.refuse(1, [FULL])
    refuse(records, session, FULL, 1, pods=False)
    refuse(records, session, NO_NODE, 1)
    assert [reason.code for reason in records[1].reasons] == [Code.OVER_LIMIT, Code.NO_NODE]
    assert list(records[1].pods.values()) == records[1].reasons[1:]


def test_a_reason_is_added_to_those_noted_in_bulk(records, session):
    refuse(records, session, NO_NODE, 0)
    records.refuse(0, [FULL])
    assert [reason.code for reason in records[0].reasons] == [Code.NO_NODE, Code.OVER_LIMIT]


def test_new_notes_replace_old_ones_on_any_record(records):
    records.note_alike(np.array([0, 1]), [SHY])
    assert records[0] == GroupRecord(notes=[SHY])
    records.note_alike(np.array([0, 1]), [SHY, FULL])
    assert records[0] == records[1] == GroupRecord(notes=[SHY, FULL])
