"""The laws of single answers: type and shape, determinism, speed, and no writes.

Each function of a plugin is called directly, outside of a cycle, on the pods, nodes and groups of one cluster. A broken
law is reported with the law, the plugin's function, the cluster, and the place in the source.
"""

import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import numpy as np

import kai
from kai.basics.errors import ConfigError, PluginError, error_text
from kai.deciding.engine.session import Session
from kai.facts.model.axis import NodeRows, PodRow
from kai.facts.state.snapshot import Snapshot
from kai.framework.hooks import (
    Extension,
    GroupOrder,
    NodeFilter,
    NodeScore,
    NodeWait,
    Plugin,
    PodFilter,
    PodOrder,
)
from kai.framework.verdict import Verdict
from kai.testing.views import open_session, opened

NOTHING_WRITTEN = "a plugin writes nothing"


class BrokenLaw(AssertionError):  # noqa: N818 - it reads as what it is: BrokenLaw: scores are finite
    """A plugin breaks a law; the message names the law, the cluster and what was observed."""


@contextmanager
def blaming(asked: str, where: str) -> Iterator[None]:
    """Turn whatever a plugin raises while ``asked`` something into a broken law on cluster ``where``.

    Raises: BrokenLaw; ConfigError unchanged, since its message already names options and clashes.
    """
    try:
        yield
    except (BrokenLaw, ConfigError, KeyboardInterrupt):
        raise
    except PluginError as error:
        cause = error.__cause__
        raise BrokenLaw(
            f"{_law(cause, error.hook)}: on cluster {where!r}, {error.hook} {error.args[0]}{_place(cause)}"
        ) from error
    except BaseException as error:
        found = f"raised {error_text(error)}"
        raise BrokenLaw(f"{_law(error, asked)}: on cluster {where!r}, {asked} {found}{_place(error)}") from error


def shown(value: object) -> str:
    """Return ``value`` on one line; for an array its type, shape and first elements."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {np.array2string(value.ravel()[:8], separator=', ')}"
    return f"{type(value).__name__} {value!r}"


def _law(error: BaseException | None, asked: str) -> str:
    if error is None:
        return f"{asked} returns what its extension point says"
    if isinstance(error, ValueError) and "read-only" in str(error):
        return NOTHING_WRITTEN
    return f"{asked} answers and raises nothing"


def _place(error: BaseException | None) -> str:
    """Return in brackets where in the plugin's source an error arose; "" if no line of the plugin was reached.

    The error may be raised deep within a library. The line of the plugin is the useful one.
    """
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    frame = next((each for each in reversed(frames) if _may_be_a_plugin(Path(each.filename))), None)
    return f" ({Path(frame.filename).name}, line {frame.lineno})" if frame else ""


def _may_be_a_plugin(file: Path) -> bool:
    if any(file.is_relative_to(folder) for folder in _WHO_ASKS):
        return False
    return not file.is_relative_to(_STANDARD) or "site-packages" in file.parts


_KAI: Final = Path(kai.__file__).parent
_WHO_ASKS: Final = (_KAI / "testing", _KAI / "engine", _KAI / "framework", Path(np.__file__).parent)
_STANDARD: Final = Path(sysconfig.get_paths()["stdlib"])


T = TypeVar("T")
SLOWEST = 0.1
"""The most seconds for an answer about a handful of nodes: a hundred times what a slow plugin needs."""
clock: Callable[[], float] = time.perf_counter


@attrs.define
class Rated:
    """Statistics of a plugin's scores over all clusters so far."""

    answers: int = 0
    numbers: int = 0
    """The number of answers with a number for at least one node."""

    def check(self) -> None:
        """Reject scores that never leave a node.

        Raises: BrokenLaw.
        """
        if self.answers and not self.numbers:
            raise BrokenLaw(
                "scores leave nodes to choose from: every score of every node for every pod is NaN, which takes nodes "
                "out; a NodeFilter says why a pod may not go somewhere"
            )


def check_answers(plugin: Plugin, taken: Snapshot, where: str, rated: Rated) -> None:
    """Call each function of ``plugin`` in several ways that must give the same result.

    Raises: BrokenLaw.
    """
    name = type(plugin).__name__
    untouched, records = _numbers(open_session(taken)), _records(open_session(taken))
    with blaming(f"{name}.open", where):
        (session, extensions), first = _timed(lambda: opened(plugin, taken))
        (_, again), second = _timed(lambda: opened(plugin, taken))
    _check_time(f"{name}.open", min(first, second), where)
    if _numbers(session) != untouched or _numbers(open_session(taken)) != untouched:
        raise BrokenLaw(f"{NOTHING_WRITTEN}: {name}.open changed the session on cluster {where!r}")
    before = session.ledger.fingerprint()
    for extension, fresh in zip(extensions, again, strict=True):
        function = _about_nodes(extension)
        if function is not None:
            for pod in _concerned(extension, session):
                _check_function(extension, function, _about_nodes(fresh), pod, session.all_nodes, where, rated)
        _check_values(extension, session, where)
    if session.ledger.fingerprint() != before:
        raise BrokenLaw(f"{NOTHING_WRITTEN}: asking it on cluster {where!r} changed the session")
    for extension in extensions:
        _check_keys(extension, session, where)
    for kind, found in _records(session).items():
        if found != records[kind]:
            raise BrokenLaw(f"{NOTHING_WRITTEN}: {name} changed the {kind} of the session on cluster {where!r}")


def _records(session: Session) -> dict[str, object]:
    """Return copies of the records that a session shows; their mappings become plain, writable ones."""
    shown = session.snapshot
    found = {"nodes": shown.nodes, "pods": shown.pods, "groups": shown.groups, "queues": shown.queues}
    return {**{kind: deepcopy(list(rows)) for kind, rows in found.items()}, "parameters": deepcopy(session.parameters)}


def _numbers(session: Session) -> bytes:
    """Return the engine's own columns as bytes; columns that a plugin tracks come after them."""
    ledger = session.ledger
    return ledger.arena[: ledger.layout.size].tobytes()


def _timed(function: Callable[[], T]) -> tuple[T, float]:
    began = clock()
    return function(), clock() - began


def _check_time(asked: str, seconds: float, where: str) -> None:
    """Reject an answer that was slow each time; ``seconds`` is the fastest call, as the first one may compile."""
    if seconds > SLOWEST:
        found = f"on cluster {where!r}, {asked} took {seconds * 1000:.0f} ms at its fastest"
        raise BrokenLaw(f"{asked} answers in less than {SLOWEST * 1000:.0f} ms: {found}")


def _about_nodes(extension: Extension) -> Callable[[PodRow, NodeRows], object] | None:
    """Return the function of ``extension`` that answers for many nodes, if it has one."""
    match extension:
        case NodeFilter():
            return extension.filter
        case NodeScore():
            return extension.score
        case NodeWait():
            return extension.must_wait
        case _:
            return None


def _concerned(extension: Extension, session: Session) -> Iterator[PodRow]:
    concerns = getattr(extension, "concerns", None)
    for row in range(len(session.snapshot.pods)):
        if concerns is None or concerns[session.view.shape_of(PodRow(row))]:
            yield PodRow(row)


def _check_function(
    extension: Extension,
    function: Callable[[PodRow, NodeRows], object],
    fresh: Callable[[PodRow, NodeRows], object] | None,
    pod: PodRow,
    nodes: NodeRows,
    where: str,
    rated: Rated,
) -> None:
    """Call one function about one pod in several ways that must give the same result."""
    name = type(extension).__name__
    turned, half, given = nodes[::-1].copy(), nodes[::2].copy(), nodes.copy()
    with blaming(name, where):
        found, slow = _timed(lambda: function(pod, given))
        if not same(given, nodes):
            raise BrokenLaw(f"{NOTHING_WRITTEN}: {name} wrote to the rows of nodes on cluster {where!r}")
        answer = np.asarray(_check_array(extension, found, nodes, where))
        repeated, quick = _timed(lambda: function(pod, nodes))
        laws = (
            (f"{name} gives the same answer twice", repeated, answer),
            (f"{name} does not depend on the order of nodes", function(pod, turned), answer[::-1]),
            (f"{name} rates each node by itself", function(pod, half), answer[::2]),
            (f"{name} is the same when the plugin is opened again", fresh and fresh(pod, nodes), answer),
        )
    for law, seen, wanted in laws:
        if not same(seen, wanted):
            raise BrokenLaw(f"{law}: on cluster {where!r} found {shown(seen)} and {shown(wanted)}")
    _check_time(name, min(slow, quick), where)
    if isinstance(extension, NodeScore):
        rated.answers += 1
        rated.numbers += bool(np.isfinite(answer).any())
    if isinstance(extension, NodeFilter) and extension.explain is not None and not answer.all():
        _check_texts(extension.explain, pod, nodes[~answer], where)


def _check_texts(explain: Callable[[PodRow, NodeRows], Any], pod: PodRow, refused: NodeRows, where: str) -> None:
    """Check that a filter explains each refusal of a node."""
    with blaming("NodeFilter.explain", where):
        texts = explain(pod, refused)
    is_list = isinstance(texts, Sequence) and not isinstance(texts, str) and len(texts) == len(refused)
    if not is_list or not all(isinstance(text, str) for text in texts):
        law = f"NodeFilter.explain returns a text for each of {len(refused)} nodes"
        raise BrokenLaw(f"{law}: on cluster {where!r} found {shown(texts)}")


def _check_array(extension: Extension, answer: object, nodes: NodeRows, where: str) -> object:
    rates = isinstance(extension, NodeScore)
    kind = np.float64 if rates else np.bool_
    wanted = f"{np.dtype(kind).name}[{len(nodes)}]"
    if not isinstance(answer, np.ndarray) or answer.dtype != kind or answer.shape != nodes.shape:
        raise BrokenLaw(f"{type(extension).__name__} returns {wanted}: on cluster {where!r} found {shown(answer)}")
    if rates and np.isinf(answer).any():
        raise BrokenLaw(f"scores are finite, or NaN to take a node out: on cluster {where!r} found {shown(answer)}")
    return answer


def _check_values(extension: Extension, session: Session, where: str) -> None:
    """Check the answers that are values rather than arrays: verdicts on pods."""
    if not isinstance(extension, PodFilter):
        return
    for pod in _concerned(extension, session):
        with blaming("PodFilter.admit", where):
            verdict = extension.admit(pod)
        if not isinstance(verdict, Verdict):
            raise BrokenLaw(f"PodFilter.admit returns a Verdict: on cluster {where!r} found {shown(verdict)}")


def _check_keys(extension: Extension, session: Session, where: str) -> None:
    if isinstance(extension, GroupOrder):
        count = len(session.snapshot.groups)
    elif isinstance(extension, PodOrder):
        count = len(session.snapshot.pods)
    else:
        return
    name = type(extension).__name__
    with blaming(f"{name}.keys", where):
        found = extension.keys(np.arange(count, dtype=np.int64))
    keys = np.asarray(found)
    if keys.dtype != np.float64 or keys.shape[:1] != (count,) or keys.ndim > 2:
        raise BrokenLaw(f"{name} returns float64[{count}, k]: on cluster {where!r} found {shown(found)}")
    if not np.isfinite(keys).all():
        raise BrokenLaw(f"keys of {name} are finite: on cluster {where!r} found {shown(keys)}")


def same(first: object, second: object) -> bool:
    """Return whether two answers are equal; NaN is equal to NaN."""
    return bool(np.array_equal(np.asarray(first), np.asarray(second), equal_nan=np.asarray(first).dtype.kind == "f"))
