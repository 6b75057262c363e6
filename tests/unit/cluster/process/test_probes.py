import anyio

from kai.cluster.process.listener import Probes


def asked(probes, path="/readyz"):
    async def ask():
        return await probes.routes()[path].answer()

    return anyio.run(ask)


def test_readiness_names_each_failing_check_and_its_reason():
    probes = Probes()
    probes.add("scheduler", lambda: "the store is not complete yet")
    probes.add("cluster", lambda: "the API server https://1.2.3.4 cannot be reached for 12s: connection refused")
    probes.add("well", lambda: "")
    answer = asked(probes)
    assert answer.status == 503
    assert answer.body.decode().splitlines() == [
        "not ready: cluster, scheduler",
        "cluster: the API server https://1.2.3.4 cannot be reached for 12s: connection refused",
        "scheduler: the store is not complete yet",
    ]


def test_a_reason_is_one_line_of_bounded_length():
    probes = Probes()
    probes.add("cluster", lambda: "first\nsecond" + "x" * 10_000)
    head, line = asked(probes).body.decode().splitlines()
    assert head == "not ready: cluster"
    assert line.startswith("cluster: first second")
    assert len(line) < 600


def test_who_is_ready_says_so():
    assert asked(Probes()).status == 200


def test_a_ready_process_still_shows_its_notes():
    probes = Probes()
    probes.add_note("scheduler", lambda: 'plugin "rack" fails')
    probes.add_note("binder", lambda: "")
    answer = asked(probes)
    assert answer.status == 200
    assert answer.body.decode().splitlines() == ["ok", 'scheduler: plugin "rack" fails']
