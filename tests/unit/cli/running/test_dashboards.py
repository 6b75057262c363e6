"""Where a dashboard may listen: what others can reach asks for tokens, or the process does not start."""

import ssl
import time

import aiohttp
import anyio
import pytest

from kai.basics.errors import ConfigError
from kai.cli.running.dashboards import Board, Place, wanted_dashboard
from kai.cli.running.flags import read_flags
from kai.cli.running.roleflags import FLAGS, ROLES, TOGETHER
from kai.cluster.clock import SystemClock
from kai.cluster.process.listener import Address
from kai.dashboard.access import TokenAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.feed import Feed
from kai.dashboard.pages import make_pages
from kai.dashboard.server import Dashboard
from kai.roles.admission.certificates import make_pair
from tests.doubles.two_tenants import ended_cycle
from tests.unit.dashboard.test_server import ALL, Rights


def wanted(*arguments):
    return wanted_dashboard(read_flags(arguments, FLAGS, ROLES, TOGETHER))


def test_without_the_flag_there_is_none():
    assert wanted("scheduler") is None
    assert wanted("scheduler", "--dashboard=0") is None


def test_alone_the_flag_is_an_address_of_this_machine():
    found = wanted("scheduler", "--dashboard")
    assert (str(found.address), found.asks_for_tokens) == ("127.0.0.1:8085", False)
    assert wanted("--dashboard", "scheduler").address == found.address


@pytest.mark.parametrize("address", [":8085", "0.0.0.0:8085", "10.0.0.1:80", "[::]:8085", "example.com:80"])
def test_others_may_reach_it_only_with_tokens(address):
    with pytest.raises(ConfigError) as refused:
        wanted("scheduler", f"--dashboard={address}")
    (line,) = str(refused.value).splitlines()
    assert line.startswith("--dashboard: found ")
    assert "--dashboard-auth=token" in line
    assert wanted("scheduler", f"--dashboard={address}", "--dashboard-auth=token").asks_for_tokens


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:8085", "localhost:8085"])
def test_addresses_of_this_machine_need_none(address):
    assert not wanted("scheduler", f"--dashboard={address}").asks_for_tokens


def test_another_way_to_be_known_does_not_start():
    with pytest.raises(ConfigError, match=r"--dashboard-auth: found 'none', expected one of local, token"):
        wanted("scheduler", "--dashboard", "--dashboard-auth=none")


def test_a_certificate_encrypts_pages_and_answers_and_cookies(tmp_path):
    pair = make_pair(("localhost",), time.time(), 86400.0)
    (tmp_path / "tls.crt").write_text(pair.certificate)
    (tmp_path / "tls.key").write_text(pair.key)
    feed = Feed()
    feed.show(ended_cycle())
    clock, access = SystemClock(), TokenAccess(Rights(anna=ALL))
    answers = AnswerCache(feed, clock)
    pages = make_pages(answers, access, clock, lambda: [("ready", "yes", True)])
    place = Place(address=Address("127.0.0.1", 0), asks_for_tokens=True, certificate=tmp_path)
    board = Board(place, feed, Dashboard(answers=answers, access=access, pages=pages, is_encrypted=True))
    context = ssl.create_default_context(cadata=pair.authority)

    async def scenario():
        async with anyio.create_task_group() as tasks:
            port = await tasks.start(lambda *, task_status: board.run(task_status=task_status))
            base = f"https://localhost:{port}"
            connector = aiohttp.TCPConnector(ssl=context)
            async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.CookieJar()) as session:
                async with session.post(f"{base}/login", data={"token": "anna"}, allow_redirects=False) as answer:
                    assert answer.status == 303
                    assert "; Secure" in answer.headers["Set-Cookie"]
                async with session.get(f"{base}/jobs") as page:
                    assert "ours-waits" in await page.text()
                async with session.get(f"{base}/api/v1/jobs", headers={"Authorization": "Bearer anna"}) as answer:
                    assert (await answer.json())["kind"] == "JobList"
                with pytest.raises(aiohttp.ClientError):
                    await session.get(f"http://localhost:{port}/jobs")
            tasks.cancel_scope.cancel()

    anyio.run(scenario)
