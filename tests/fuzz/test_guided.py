"""The guided search finds what chance does not, and what it once kept is given to decoders in each run of the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import guided
from tests.fuzz.guided import Guided, least, read_corpus, write_corpus
from tests.fuzz.running import of_target
from tests.fuzz.target import BrokenError, Target, try_out
from tests.fuzz.targets import TARGETS

HERE = Path(__file__)


def _locked(given: bytes) -> int:
    """Fail behind three doors, of which each is a line that only the right next byte reaches."""
    if given[:1] == b"-":
        if given[1:2] == b"+":
            if given[2:3] == b".":
                raise KeyError("found")
            return 2
        return 1
    return 0


def _endless(given: bytes) -> None:
    while given:
        pass


LOCKED = Target(name="locked", samples=lambda: (b"xxxxxxxx",), read=_locked, is_raw=True)


def test_inputs_reaching_new_paths_are_followed_until_failure(tmp_path):
    searched = Guided.of(LOCKED, HERE, tmp_path)
    (text,) = list(searched.run(20_000))
    assert "KeyError" in text
    assert {_locked(each) for each in searched.found} == {1, 2}
    assert list(of_target(LOCKED, range(20_000))) == []  # five times as many find nothing, either


def test_a_search_is_the_same_whenever_it_is_made(tmp_path):
    first, second = (Guided.of(LOCKED, HERE, tmp_path) for _ in range(2))
    assert list(first.run(3_000)) == list(second.run(3_000))
    assert first.found == second.found


def test_an_input_without_end_is_broken(monkeypatch, tmp_path):
    monkeypatch.setattr(guided, "STEPS", 1000)
    target = Target(name="endless", samples=lambda: (b"",), read=_endless, is_raw=True)
    searched = Guided.of(target, HERE, tmp_path)
    with pytest.raises(BrokenError, match="more than 1000 lines"):
        searched.tracer.run(target, b"x")


def test_the_corpus_keeps_the_shortest_input_per_path(tmp_path):
    inputs = [b"-" + b"x" * 5000, b"-\xffy", b"-\xff", b"-+", b"yy"]
    kept = least(LOCKED, inputs, HERE, tmp_path)
    assert kept == [b"-\xff", b"-+"]
    write_corpus(LOCKED, kept, tmp_path)
    write_corpus(LOCKED, [b"-+x"], tmp_path)
    assert read_corpus(LOCKED, tmp_path) == (b"-\xff", b"-+", b"-+x")
    assert least(LOCKED, inputs, HERE, tmp_path) == []


@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.name)
def test_what_a_search_kept_is_taken_or_refused(target):
    for each in read_corpus(target):
        try_out(target, each)
