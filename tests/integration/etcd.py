"""The store beneath an API server: what it forgets, how far it is, and how it is put back to a backup.

etcd is asked over HTTP with JSON, which it understands besides gRPC.
"""

import base64
import http.client
import json
import os
import shutil
import signal
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.integration.client import Manifest, until
from tests.integration.controlplane import ControlPlane

_AT_ONCE = 100
"""So many objects in one transaction: etcd takes 128."""
_BUMP = 200
"""So many versions later than ever before a backup goes on whose versions are moved on."""


def compact(plane: ControlPlane) -> None:
    """Let etcd forget the past, as the API server itself asks for every five minutes."""
    with closing(_connected(plane)) as connection:
        _ask(connection, "/v3/kv/compaction", {"revision": _revision(connection), "physical": True})


def put(plane: ControlPlane, objects: Mapping[str, Manifest]) -> None:
    """Write objects into the store as they are, past the API server; it reads JSON there as well as its own form."""
    entries = [{"requestPut": {"key": _text(key), "value": _text(json.dumps(each))}} for key, each in objects.items()]
    with closing(_connected(plane)) as connection:
        for start in range(0, len(entries), _AT_ONCE):
            answer = _ask(connection, "/v3/kv/txn", {"success": entries[start : start + _AT_ONCE]})
            if not answer.get("succeeded"):
                raise RuntimeError(f"etcd: found {answer}, expected objects to be taken")


def back_up(plane: ControlPlane, backup: Path) -> None:
    """Copy the store as it is at this moment.

    etcd stands still meanwhile. What it had not written out by then is lost, as it is when it is killed.
    """
    os.kill(plane.etcd.pid, signal.SIGSTOP)
    try:
        shutil.copytree(_folder(plane), backup)
    finally:
        os.kill(plane.etcd.pid, signal.SIGCONT)


def put_back(plane: ControlPlane, backup: Path, *, is_moved_on: bool = False) -> None:
    """Put the store back to a backup, with the API server stopped, and wait until the API server is ready again.

    Versions go back with the store, unless they are moved on: then they go on beyond all that were ever given out, and
    the past is compacted, so that watchers begin anew. etcd's own tool does so when it is asked to. The controllers are
    started anew, as Kubernetes asks for; kai is not.
    """
    with closing(_connected(plane)) as connection:
        latest = _revision(connection)
    plane.apiserver.stop(kill=True)
    plane.etcd.stop(kill=True)
    shutil.rmtree(_folder(plane))
    shutil.copytree(backup, _folder(plane))
    plane.etcd.start()
    until(lambda: _answers(plane), "etcd")
    if is_moved_on:
        _move_on(plane, latest + _BUMP)
    plane.restart_apiserver()
    plane.restart_controllers()


def _move_on(plane: ControlPlane, revision: int) -> None:
    body = {"key": _text("/moved-on"), "value": ""}
    with closing(_connected(plane)) as connection:
        for _ in range(revision - _revision(connection)):
            _ask(connection, "/v3/kv/put", body)
    compact(plane)


def _folder(plane: ControlPlane) -> Path:
    return plane.folder / "etcd"


def _answers(plane: ControlPlane) -> bool:
    _ = plane.etcd.pid  # raises when it has died
    try:
        with closing(_connected(plane)) as connection:
            return _revision(connection) > 0
    except (OSError, http.client.HTTPException, KeyError):
        return False


def _connected(plane: ControlPlane) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(plane.etcd_url).netloc, timeout=60)


def _revision(connection: http.client.HTTPConnection) -> int:
    return int(_ask(connection, "/v3/kv/range", {"key": _text("/"), "limit": 1})["header"]["revision"])


def _ask(connection: http.client.HTTPConnection, path: str, body: object) -> Any:
    connection.request("POST", path, json.dumps(body))
    return json.load(connection.getresponse())


def _text(key: str) -> str:
    return base64.b64encode(key.encode()).decode()
