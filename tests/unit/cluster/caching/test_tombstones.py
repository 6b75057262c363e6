"""Ends are remembered for as long as a late word may come, and not for ever."""

from kai.cluster.caching.tombstones import Tombstones


def test_a_tombstone_covers_only_versions_up_to_its_own():
    tombstones = Tombstones()
    tombstones.leave("u1", 7)
    tombstones.leave("u2", -1)
    assert [tombstones.covers("u1", version) for version in (6, 7, 8)] == [True, True, False]
    assert tombstones.covers("u2", 1 << 60)
    assert not tombstones.covers("u3", 1)


def test_an_end_is_remembered_until_the_second_call():
    tombstones = Tombstones()
    tombstones.leave("u1", 7)
    tombstones.fade()
    tombstones.leave("u2", 7)
    assert tombstones.covers("u1", 6)
    tombstones.fade()
    assert not tombstones.covers("u1", 6)
    assert tombstones.covers("u2", 6)


def test_an_end_at_version_zero_is_one():
    tombstones = Tombstones()
    tombstones.leave("u1", 0)
    assert tombstones.covers("u1", 0)


def test_a_list_refutes_only_earlier_deletions():
    tombstones = Tombstones()
    tombstones.leave("u1", 7)
    known = tombstones.noted
    tombstones.leave("u2", -1)
    assert [tombstones.is_refuted("u1", version, 0) for version in (6, 7, 8)] == [False, True, True]
    assert tombstones.is_refuted("u1", 6, known)
    assert not tombstones.is_refuted("u2", 8, known)
    assert tombstones.is_refuted("u2", 8, tombstones.noted)
    assert not tombstones.is_refuted("u3", 8, tombstones.noted)
