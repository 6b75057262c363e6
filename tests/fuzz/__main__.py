"""Fuzz decoders: ``python -m tests.fuzz --objects 1000000``, or one of them by name with ``--target quantity``."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from tests.fuzz.guided import Guided, least, write_corpus
from tests.fuzz.running import batches_of, numbers_of, of_clusters, of_target
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.target import Target


def main() -> int:
    """Run what the command line asks for; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--objects", type=int, default=100_000, help="how many, over all decoders")
    parser.add_argument("--target", default="", help="one decoder, or cluster; all objects are for it")
    parser.add_argument("--first", type=int, default=0, help="the number to begin with, or the seed of a batch")
    parser.add_argument("--guided", action="store_true", help="keep and change further what takes a new way in kai")
    parser.add_argument("--keep", action="store_true", help="add what is kept to tests/fuzz/corpus; with --guided")
    arguments = parser.parse_args()
    chosen = tuple(each for each in TARGETS if arguments.target in {"", each.name})
    if arguments.guided:
        return _guided(chosen, arguments.objects, arguments.first, is_kept=arguments.keep)
    wrong = 0
    for target, numbers in numbers_of(chosen, arguments.objects, 0, 1):
        own = range(arguments.first, arguments.first + (arguments.objects if arguments.target else len(numbers)))
        wrong += _told(target.name, len(own), of_target(target, own))
    if arguments.target in {"", "cluster"}:
        seeds = batches_of(arguments.objects, 0, 1)
        wrong += _told("cluster", len(seeds), of_clusters(range(arguments.first, arguments.first + len(seeds))))
    return int(bool(wrong))


def _guided(chosen: tuple[Target, ...], objects: int, seed: int, *, is_kept: bool) -> int:
    wrong, total = 0, sum(each.weight for each in chosen)
    for target in chosen:
        since, count = time.process_time(), max(1, objects * target.weight // total)
        guided = Guided.of(target)
        ways = len(guided.tracer.seen)
        for text in guided.run(count, seed):
            wrong += 1
            sys.stdout.write(f"{text[:4000]}\n")
        sys.stdout.write(
            f"{target.name}: {count} given, {ways} ways before, {len(guided.tracer.seen)} after, "
            f"{len(guided.found)} kept, at most {guided.tracer.most} lines for one, "
            f"{time.process_time() - since:.1f} s of processor\n"
        )
        sys.stdout.flush()
        if is_kept:
            write_corpus(target, least(target, guided.found))
    return int(bool(wrong))


def _told(name: str, count: int, found: Iterator[str]) -> int:
    since, wrong = time.process_time(), 0
    for text in found:
        wrong += 1
        sys.stdout.write(f"{text}\n")
    sys.stdout.write(f"{name}: {count}, {wrong} wrong, {time.process_time() - since:.1f} s of processor\n")
    sys.stdout.flush()
    return wrong


if __name__ == "__main__":
    sys.exit(main())
