import attrs
import pytest

from kai.cli.demonstrating.demo import watch_of
from kai.cli.demonstrating.playing import DOWN, SLOW, Pacing, Player
from kai.cli.demonstrating.scenes import scene_named
from tests.unit.cli.demonstrating.stages import ScriptedStage

HOUR = 3600.0


def player(keys=(), *, scene="reclaim", speed=300.0, until=1.5 * HOUR, **changes):
    stage = ScriptedStage(keys=list(keys), **changes)
    asked = []

    def explain(outcome, key, width):
        assert width == 80
        asked.append(key)
        return f"{key} waits"

    watched = watch_of(scene_named(scene).load(0).scene, until)
    watched.begin()
    pacing = Pacing(speed=speed, clock=stage.now())
    return Player(title=scene, watched=watched, stage=stage, pacing=pacing, explain=explain), stage, asked


def test_a_scene_lasts_by_its_speed_and_slowdowns():
    playing, stage, _ = player()
    assert playing.play() == 1.5 * HOUR
    # The last job ends at 1:10:30. Two evictions, each with 30 seconds of grace, are shown at five times the clock.
    last = 4230.0
    assert stage.clock - stage.began == pytest.approx((last - 60.0) / 300.0 + 60.0 / SLOW, rel=0.01)
    assert stage.frames[-1].picture.at == 1.5 * HOUR


def test_the_first_picture_is_drawn_before_the_first_cycle():
    playing, stage, _ = player()
    playing.play()
    first = stage.frames[0].picture
    assert (first.cycle, first.used, [node.name for node in first.nodes]) == (0, 0, ["gpu-1", "gpu-2", "gpu-3"])
    assert (first.jobs, first.to_come, first.upcoming) == ((), 8, "blue arrives in 6s")
    assert stage.frames[-1].picture.to_come == 0


def test_terminating_pods_are_drawn_leaving_and_count_as_used():
    playing, stage, _ = player()
    playing.play()
    slow = next(frame for frame in stage.frames if frame.state == "slowed: reclaim")
    cells = {node.name: [cell.state for cell in node.cells] for node in slow.picture.nodes}
    assert cells["gpu-3"] == ["going"] * 8
    jobs = {job.name: job for job in slow.picture.jobs}
    assert (jobs["red-train"].running, jobs["red-train"].pods) == (0, 2)
    assert any("reclaim" in line.text and "red-train" in line.text for line in slow.lines)
    queues = {queue.name: queue for queue in slow.picture.queues}
    # Evicted pods hold their devices until they are gone, and blue's owner has made them again.
    assert (queues["blue"].used, queues["blue"].waits, queues["red"].waits) == (24.0, 2, 2)


def test_keys_pause_step_and_change_the_speed():
    keys = [(1.0, " "), (5.0, "."), (6.0, "+"), (7.0, " "), (8.0, "q")]
    playing, stage, _ = player(keys, speed=60.0)
    ended = playing.play()
    paused = [frame for frame in stage.frames if frame.state == "paused"]
    # A second at 60x, then nothing until the step goes on to the next cycle.
    assert [frame.picture.at for frame in paused[:3]] == [pytest.approx(60.0)] * 3
    assert paused[-1].picture.cycle == paused[0].picture.cycle + 1
    assert stage.frames[-1].pace == 120.0
    assert ended == pytest.approx(paused[-1].picture.at + 120.0)


def test_the_waiting_page_asks_once_for_each_job():
    keys = [(4.0, "w"), (4.5, DOWN), (5.0, DOWN), (5.5, "x"), (6.0, "q")]
    playing, stage, asked = player(keys)
    playing.play()
    pages = [frame.page for frame in stage.frames if frame.page]
    assert len(asked) == len(set(asked)) == 3
    # The wait for an answer is shown before the answer.
    assert pages[0].endswith("1 of 3 jobs that wait; deciding what would help ...")
    assert pages[1].startswith(f"{asked[0]} waits")
    assert pages[1].endswith("1 of 3 jobs that wait")
    assert not stage.frames[-1].page


def test_space_turns_an_open_page_and_pauses_nothing():
    playing, stage, _ = player([(4.0, "w"), (4.3, " "), (4.6, DOWN), (5.0, "x"), (5.5, "q")])
    playing.play()
    assert [frame.turned for frame in stage.frames if frame.page and frame.turned] != []
    assert stage.frames[-1].turned in {0, 1}
    assert not any(frame.state == "paused" for frame in stage.frames)


def test_no_page_denies_a_known_next_end():
    playing, stage, _ = player([(4.0, "w"), (4.6, "x"), (5.0, "q")])
    playing.explain = lambda *_: "wait  until running work ends (no end time is known)"
    playing.play()
    shown = [frame for frame in stage.frames if frame.page.startswith("wait ")]
    assert shown
    for frame in shown:
        assert ("no end time is known" in frame.page) is not bool(frame.picture.upcoming)


def test_the_eviction_page_shows_the_shares_that_allowed_it():
    playing, stage, _ = player([(4.0, "e"), (4.3, "x"), (4.6, "q")])
    playing.play()
    page = next(frame.page for frame in stage.frames if frame.page)
    assert "2 pods of 2 jobs evicted for red-train from gpu-3 (8 GPUs, reclaim)" in page
    assert "blue used 24 GPUs, fair share 16" in page


def test_a_slow_terminal_makes_the_run_no_different():
    quick, slow = player(speed=3000.0), player(speed=3000.0, draws_for=0.7)
    digests = []
    for playing, _, _ in (quick, slow):
        playing.play()
        digests.append(playing.watched.run.finish().digest)
    assert digests[0] == digests[1]


def test_what_is_played_is_what_is_simulated():
    from kai.lab.virtual.running.simulation import run

    playing, _, _ = player(scene="gang")
    playing.play()
    scene = scene_named("gang").load(0).scene
    assert playing.watched.run.finish().digest == run(attrs.evolve(scene), until=1.5 * HOUR).digest
