from tests.properties import resting


def test_a_seed_draws_the_same_clusters_each_time():
    one, other = (resting.look(range(7, 9), 5) for _ in range(2))
    assert one.clusters == other.clusters == 10
    assert one.different == other.different
    assert one.cycles == other.cycles
    assert not one.restless


def test_a_restless_cluster_is_reported_with_seed_and_shrunk(monkeypatch):
    def evicts_for_ever(snapshot):
        return [{"evictions": int(len(snapshot.groups) > 3)}]

    monkeypatch.setattr(resting, "turns_of", evicts_for_ever)
    found = resting.look(range(7, 8), 20)
    assert 0 < len(found.restless) < 20
    assert found.restless[0].startswith("seed 7: ")
    assert resting.smallest(7, 20).count("PodGroup(") == 4


def test_the_command_says_how_many_were_seen(capsys, monkeypatch):
    monkeypatch.setattr(resting, "CLUSTERS", 5)
    monkeypatch.setattr("sys.argv", ["resting", "--seeds", "7..8"])
    assert resting.main() == 0
    told = capsys.readouterr().out
    assert "seeds 7..8: 10 clusters" in told
    assert "0 restless" in told
