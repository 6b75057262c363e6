"""Logs are one JSON object a line, from the level that was asked for."""

import contextlib
import io
import json
import logging

import pytest
import structlog

from kai.cluster.process.logs import level_of, set_up_logs, verbosity_of


@pytest.fixture(autouse=True)
def as_before():
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers, _ = handlers, logging.getLogger().setLevel(level)


def lines(verbosity):
    out = io.StringIO()
    with contextlib.redirect_stderr(out):
        set_up_logs(verbosity=verbosity)
    structlog.get_logger().debug("detail", pod="a/b")
    structlog.get_logger().info("bound", pod="a/b")
    logging.getLogger("aiohttp.client").warning("slow")
    logging.getLogger("aiohttp.client").info("chatter")
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_what_is_written_is_json_and_libraries_join_in():
    bound, slow = lines(3)
    assert (bound["event"], bound["pod"], bound["level"]) == ("bound", "a/b", "info")
    assert (slow["event"], slow["logger"]) == ("slow", "aiohttp.client")


def test_verbosity_decides_the_level():
    assert [line["event"] for line in lines(4)] == ["detail", "bound", "slow"]
    assert [line["event"] for line in lines(0)] == ["slow"]
    assert level_of(-1) == logging.WARNING
    assert (verbosity_of("4"), verbosity_of("Debug"), verbosity_of("loud")) == (4, 4, None)


def test_a_librarys_repeated_messages_are_limited_too():
    out = io.StringIO()
    with contextlib.redirect_stderr(out):
        set_up_logs()
    for seconds in range(40):
        logging.getLogger("opentelemetry.exporter").warning("Transient error, retrying in %.2fs.", seconds)
        logging.getLogger("opentelemetry.exporter").error("Failed to export")
    told = [json.loads(line)["event"] for line in out.getvalue().splitlines()]
    assert (told.count("Failed to export"), len(told)) == (5, 10)
