"""The client against a server of a few lines that answers as it is told, on a real socket."""

import asyncio
import json
import shutil
import ssl
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from kai.cluster.clock import SystemClock
from kai.cluster.transport.calls import Answer, Call, NoAnswer
from kai.cluster.transport.client import Account, Client, UnauthorizedError, user_agent
from kai.cluster.transport.credentials import Credentials, Source
from tests.doubles.scripted_http import OK, serving
from tests.doubles.virtual_time import VirtualClock, run
from tests.unit.roles.admission.test_serving import made

pytestmark = pytest.mark.anyio
GET = Call(method="GET", path="/version", timeout=5.0)
UNAUTHORIZED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


def write_config(path, address, token="one", authority=""):  # noqa: S107 - not a secret
    path.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": address, "certificate-authority": authority}}],
                "users": [{"name": "u", "user": {"token": token}}],
            }
        )
    )


@asynccontextmanager
async def client_of(server, path, authority="", **options):
    await anyio.to_thread.run_sync(write_config, path, server.address, "one", authority)
    account = await Account.open(Source(kubeconfig=str(path)), SystemClock())
    async with Client(account, user_agent=user_agent("test", "1.0"), **options) as client:
        yield client, account


@pytest.fixture
def config(tmp_path):
    return tmp_path / "kubeconfig"


async def test_bytes_go_out_and_come_in_as_they_are(config):
    async with serving(OK) as server, client_of(server, config) as (client, _):
        call = Call(method="PATCH", path="/a%2Fb", query=(("x", "1 &"),), body=b"{}", content_type="application/x")
        assert await client.request(call) == Answer(status=200, body=b"ok")
        head, body = server.requests[0]
        assert head.startswith("PATCH /a%2Fb?x=1+%26 HTTP/1.1\r\n")
        assert "Authorization: Bearer one\r\n" in head
        assert "Content-Type: application/x\r\n" in head
        assert "User-Agent: kai/1.0 (" in head
        assert body == b"{}"


async def test_a_withheld_call_is_not_repeated_with_another_token(config):
    async with serving(UNAUTHORIZED, OK) as server, client_of(server, config) as (client, _):
        await anyio.to_thread.run_sync(write_config, config, server.address, "two")
        answer = await client.request(Call(method="POST", path="/x", may_send=lambda: not server.requests))
        assert isinstance(answer, NoAnswer)
        assert len(server.requests) == 1


async def test_the_header_that_asks_for_patience_is_handed_on(config):
    throttled = b"HTTP/1.1 429 Too Many\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n"
    async with serving(throttled) as server, client_of(server, config) as (client, _):
        assert await client.request(GET) == Answer(status=429, retry_after="3")


async def test_redirects_are_not_followed(config):
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
    async with serving(moved) as server, client_of(server, config) as (client, _):
        assert (await client.request(GET)).status == 302


async def test_a_refused_connection_reports_that_nothing_was_sent(config):
    async with serving(OK) as server:
        pass
    async with client_of(server, config) as (client, _):
        answer = await client.request(Call(method="POST", path="/x", body=b"{}"))
        assert isinstance(answer, NoAnswer)
        assert not answer.was_sent
        assert answer.message.startswith("POST /x: ")


@pytest.mark.parametrize(
    "answer",
    [None, (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf",), (b"HTTP/1.1 2",), (b"nonsense\r\n\r\n",)],
    ids=["closed", "cut body", "cut head", "not HTTP"],
)
async def test_a_connection_that_is_cut_may_have_sent_it(config, answer):
    async with serving(answer) as server, client_of(server, config) as (client, _):
        found = await client.request(Call(method="POST", path="/x", body=b"{}"))
        assert isinstance(found, NoAnswer)
        assert found.was_sent
        assert len(server.requests) == 1, "a write is not sent again"


async def test_an_answer_that_takes_too_long_may_still_come(config):
    async with serving((30.0,)) as server, client_of(server, config) as (client, _):
        found = await client.request(Call(method="POST", path="/x", timeout=0.5))
        assert isinstance(found, NoAnswer)
        assert found.was_sent


async def test_a_stream_brings_what_arrives_and_then_its_end(config):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = (head, b"3\r\nab\n\r\n", 0.05, b"2\r\nc\n\r\n", b"0\r\n\r\n")
    async with serving(answer) as server, client_of(server, config) as (client, _):
        async with client.stream(GET) as stream:
            pieces = []
            while piece := await stream.read():
                pieces.append(piece)
        assert b"".join(pieces) == b"ab\nc\n"


async def test_a_stream_that_is_cut_says_so(config):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving((head, b"3\r\nab\n\r\n", b"9\r\nc")) as server, client_of(server, config) as (client, _):
        async with client.stream(GET) as stream:
            pieces = [await stream.read()]
            while not isinstance(pieces[-1], NoAnswer):
                pieces.append(await stream.read())
        assert pieces[0] == b"ab\n"
        assert pieces[-1].was_sent


async def test_a_left_stream_closes_without_the_servers_goodbye(config, tmp_path):
    certificate = (await anyio.to_thread.run_sync(made, tmp_path / "certificate")).folder
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with (
        serving((head, b"3\r\nab\n\r\n", 1000.0), tls=context) as server,
        client_of(server, config, str(certificate / "tls.crt")) as (client, _),
    ):
        async with client.stream(GET) as stream:
            assert await stream.read() == b"ab\n"
            socket = stream._response.connection.transport.get_extra_info("socket")
        await anyio.sleep(0.02)
        assert socket.fileno() == -1


async def test_a_stream_that_is_refused_is_an_answer(config):
    gone = b"HTTP/1.1 410 Gone\r\nContent-Length: 2\r\n\r\n{}"
    async with serving(gone) as server, client_of(server, config) as (client, _), client.stream(GET) as stream:
        assert stream == Answer(status=410, body=b"{}")


async def test_an_expired_token_is_read_again_and_used(config):
    async with serving(UNAUTHORIZED, OK) as server, client_of(server, config) as (client, account):
        await anyio.to_thread.run_sync(write_config, config, server.address, "two")
        assert (await client.request(GET)).status == 200
        assert ["Bearer one" in server.requests[0][0], "Bearer two" in server.requests[1][0]] == [True, True]
        assert account.refused_since is None


async def test_a_token_that_stays_refused_is_not_repeated(config):
    async with serving(UNAUTHORIZED) as server, client_of(server, config) as (client, account):
        assert (await client.request(GET)).status == 401
        assert len(server.requests) == 1
        assert account.refused_since is not None


async def test_changed_authorities_are_read_again_and_used(config, tmp_path, monkeypatch):
    monkeypatch.setattr("kai.cluster.transport.client._AGAIN", 0.0)
    before, after = [(await to_thread.run_sync(made, tmp_path / name)).folder for name in ("before", "after")]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(after / "tls.crt", after / "tls.key")
    trusted = tmp_path / "ca.crt"
    await to_thread.run_sync(shutil.copy, before / "tls.crt", trusted)

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        await to_thread.run_sync(write_config, config, f"https://localhost:{port}", "one", str(trusted))
        account = await Account.open(Source(kubeconfig=str(config)), SystemClock())
        async with Client(account, user_agent="test") as client:
            assert (await client.request(GET)).is_distrusted
            await to_thread.run_sync(shutil.copy, after / "tls.crt", trusted)
            assert (await client.request(GET)).status == 200


async def test_another_address_means_other_connections(config):
    async with serving(OK) as old, serving(OK) as new, client_of(old, config) as (client, account):
        await client.request(GET)
        await anyio.to_thread.run_sync(write_config, config, new.address)
        assert await account.refresh()
        await client.request(GET)
        assert (len(old.requests), len(new.requests)) == (1, 1)
        assert account.generation == 1


async def test_an_unreadable_file_leaves_the_credentials_unchanged(config):
    async with serving(OK) as server, client_of(server, config) as (client, account):
        await anyio.to_thread.run_sync(config.unlink)
        assert not await account.refresh()
        assert "expected a readable file" in account.problem
        assert (await client.request(GET)).status == 200


class Urgent(SystemClock):
    """A clock on which seconds pass by the thousand."""

    def monotonic(self):
        return super().monotonic() * 1000

    async def sleep(self, seconds):
        await anyio.sleep(seconds / 1000)


async def test_a_process_refused_for_30_seconds_ends(config):
    await anyio.to_thread.run_sync(write_config, config, "http://127.0.0.1:1")
    account = await Account.open(Source(kubeconfig=str(config)), Urgent())

    async def refuse():
        while True:
            account.note(401)
            await account.clock.sleep(1.0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(refuse)
        with anyio.fail_after(5), pytest.raises(UnauthorizedError, match="found refused with 401 for 30 seconds"):
            await account.run()
        tasks.cancel_scope.cancel()


class Fixed:
    """Credentials that stay as they are."""

    def load(self):
        return Credentials(server="http://127.0.0.1:1")


class Scripted:
    """Connections whose calls end as they are told."""

    def __init__(self):
        self.end = Answer(status=401)

    async def exchange(self, call, authorization):
        del call, authorization
        return self.end


def test_time_without_answers_does_not_count_as_refusal(monkeypatch):
    async def at_once(function, *arguments):
        return function(*arguments)

    monkeypatch.setattr(to_thread, "run_sync", at_once)

    async def scenario():
        account = await Account.open(Fixed(), VirtualClock())
        client, connections = Client(account, user_agent="test"), Scripted()
        client._made.append((0, connections))
        ended = []

        async def guarded():
            try:
                await account.run()
            except UnauthorizedError as error:
                ended.append(error)

        async def ask(end, seconds):
            connections.end = end
            for _ in range(seconds):
                await client.request(GET)
                await anyio.sleep(1.0)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(guarded)
            await ask(Answer(status=401), 10)
            await ask(NoAnswer(was_sent=False), 90)
            await ask(Answer(status=401), 20)
            assert not ended, "28 seconds in which refusal followed refusal, and 90 of silence"
            assert account.refused_since is not None, "but the server did not say that it knows us either"
            await ask(Answer(status=401), 5)
            assert ended
            tasks.cancel_scope.cancel()

    run(scenario)


async def test_an_account_reads_its_credentials_every_minute(config):
    await anyio.to_thread.run_sync(write_config, config, "http://127.0.0.1:1")
    account = await Account.open(Source(kubeconfig=str(config)), Urgent())
    await anyio.to_thread.run_sync(write_config, config, "http://127.0.0.1:1", "two")
    with anyio.move_on_after(1):
        await account.run()
    assert account.credentials.authorization == "Bearer two"
    assert account.generation == 0, "a token alone needs no new connections"


async def test_refused_and_restored_credentials_are_one_line_each(config):
    answers = (*[UNAUTHORIZED] * 3, OK)
    async with serving(*answers) as server, client_of(server, config) as (client, _):
        with capture_logs() as lines:
            for _ in range(5):
                await client.request(GET)
    events = [line["event"] for line in lines]
    assert events == ["API server does not know our credentials", "API server knows our credentials again"]
    assert (lines[0]["log_level"], lines[0]["server"], lines[0]["why"]) == ("error", server.address, "401")
