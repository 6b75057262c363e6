"""Checks of the answers of plugins against the contract of each hook.

A plugin's function may return anything. A wrong answer would fail later, where the engine no longer knows the plugin,
or a kernel would read memory outside of an array. So the engine checks kind, shape and length of each answer at once.
It does not judge the numbers themselves.

Holds: an answer that passes is used as it is.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast, get_args

import attrs
import numpy as np

from kai.facts.model.placement import WIRE_RECORDS
from kai.facts.state.ledger import Tracked
from kai.framework.hooks import (
    Batch,
    Dependence,
    Domains,
    DomainTree,
    Effect,
    Extension,
    Partition,
    Rates,
    Taken,
    Together,
    Transitions,
)
from kai.framework.scenario import Batches, Outer, Scenario
from kai.framework.terms import FairShares, Fragmentation, QueueWeights, Term
from kai.framework.verdict import Code, Reason, Verdict, Words
from kai.framework.view import SessionView

if TYPE_CHECKING:
    from kai.facts.model.axis import Int64s, Scores

Check = Callable[[object, tuple[Any, ...], SessionView], str]
"""Takes an answer, the arguments of the hook, and the session; returns the objection to it, "" for a good answer."""


def check_of(hook: str) -> Check | None:
    """Return the check of answers of ``hook``; None if the engine accepts any answer."""
    return _CHECKS.get(hook)


def objection_to_proposals(answer: object) -> str:
    """Return the objection to ``answer`` as a collection of proposals; "" for an iterable of scenarios."""
    return "" if isinstance(answer, Iterable) else _instead(answer, "an iterator of Scenarios")


def objection_to_proposal(answer: object, outer: Outer | None) -> str:
    """Return the objection to ``answer`` as one proposed scenario; "" for a sound Scenario.

    Its victims must be in ``outer``, since no other pods may be taken. With None, proposals are trusted.
    """
    if not isinstance(answer, Scenario):
        return _instead(answer, "Scenarios")
    if outer is None:
        return ""
    if (answer.aggressor, answer.waiting) != (outer.aggressor, outer.waiting):
        return "returned a Scenario for other pods than the outer one, expected what outer.scenario() makes"
    for batches in cast("tuple[object, object]", (answer.recorded, answer.potential)):
        if not isinstance(batches, Batches) or not _is_sound(batches):
            return f"{_instead(batches, 'Batches.of(...)')} in a Scenario"
    strange = np.setdiff1d(answer.batches.pods, outer.recorded.followed_by(outer.batches).pods)
    return f"returned a Scenario with the pod {strange[0]}, expected pods of the outer one" if len(strange) else ""


def _is_sound(batches: Batches) -> bool:
    """Return whether the batches are arrays of rows, each beginning where the one before it ends."""
    arrays = cast("tuple[object, object]", (batches.pods, batches.start))
    if not all(isinstance(each, np.ndarray) and each.dtype == np.int64 and each.ndim == 1 for each in arrays):
        return False
    start = batches.start
    return bool(len(start) and start[0] == 0 and start[-1] == len(batches.pods) and (np.diff(start) >= 0).all())


def objection_to_term(term: Term, view: SessionView) -> tuple[str, str]:
    """Return the name of a wrong field of ``term`` and the objection to it; two empty texts for a sound term.

    Kernels evaluate terms: they read arrays without a look at the length, and a sum with NaN rates no node.
    """
    shapes = _shapes_of(term, view)
    for field in attrs.fields(type(term)):
        value = getattr(term, field.name)
        if field.name in shapes:
            is_left_out = value is None and field.default is None
            objection = "" if is_left_out else _table(value, *shapes[field.name])
        elif field.name == "divide":
            objection = (
                ""
                if value is None or callable(value)
                else _instead(value, "a function").replace("returned", "found", 1)
            )
        elif field.type is bool:
            objection = "" if isinstance(value, bool) else f"found {value!r}, expected true or false"
        else:
            objection = "" if _is_finite(value) else f"found {value!r}, expected a finite number"
        if objection:
            return field.name, objection
    if isinstance(term, QueueWeights) and not (np.isfinite(term.factors) & (term.factors >= 0)).all():
        return "factors", "found a negative or infinite number, expected finite ones, 0 or more"
    if isinstance(term, Fragmentation) and not _are_rows(term.shapes, len(view.snapshot.shapes)):
        return "shapes", f"found rows {term.shapes.tolist()}, expected rows below {len(view.snapshot.shapes)}"
    return "", ""


def _are_rows(rows: Int64s, count: int) -> bool:
    return not len(rows) or bool(0 <= rows.min() <= rows.max() < count)


_Form = tuple[type[np.generic], tuple[int, ...]]
"""The type and shape of an array."""


def _shapes_of(term: Term, view: SessionView) -> Mapping[str, _Form]:
    """Return the expected type and shape of the arrays of a term, by field."""
    if isinstance(term, FairShares):
        of_queues: _Form = (np.float64, (len(view.snapshot.queues), 3))
        return {
            **dict.fromkeys(("fair_share", "allocatable", "requested"), of_queues),
            "total": (np.float64, (3,)),
            "models": (np.int64, view.facts.queues.model_quota.shape),
            "bound": (np.int64, view.facts.groups.queue.shape),
            "past_use": (np.float64, view.facts.queues.created.shape),
        }
    if isinstance(term, QueueWeights):
        return {"factors": (np.float64, (len(view.snapshot.queues), 3))}
    if isinstance(term, Fragmentation):
        typical, of_nodes = np.size(term.shapes), (np.float64, (len(view.nodes),))
        return {
            "shapes": (np.int64, (typical,)),
            "shares": (np.float64, (typical,)),
            "allowed": (np.bool_, (typical, len(view.nodes))),
            "gpu_by_cpu": of_nodes,
            "gpu_by_memory": of_nodes,
            "pressure": of_nodes,
        }
    return {}


def _table(value: object, dtype: type[np.generic], shape: tuple[int, ...]) -> str:
    # Kernels are compiled for writable arrays in C order. Another layout would compile them again in the middle of a
    # cycle.
    if isinstance(value, np.ndarray) and (value.dtype, value.shape) == (dtype, shape) and value.flags.carray:
        unordered = dtype is np.float64 and bool(np.isnan(value).any())
        return "found NaN, expected numbers" if unordered else ""
    wanted = f"{dtype.__name__.rstrip('_')}{list(shape)}, contiguous and not locked"
    return _instead(value, wanted).replace("returned", "found", 1)


def objection_to_effects(answer: object, _: object, view: SessionView) -> str:
    """Return the objection to ``answer`` as effects; "" if each adds whole numbers to a cell of its column.

    A write beyond a column, or to a column of an earlier session, would change another plugin's or the engine's number.
    """
    if not isinstance(answer, Sequence) or isinstance(answer, str):
        return _instead(answer, "a sequence of Effects")
    for effect in answer:
        if not isinstance(effect, Effect):
            return _instead(effect, "Effects")
        column, index, delta = cast("tuple[object, object, object]", (effect.column, effect.index, effect.delta))
        if not isinstance(column, Tracked):
            return f"{_instead(column, 'a column of the session')} as column of an Effect"
        if not view.has_column(column):
            return "returned an Effect on a column of no plugin or of an earlier session, expected one of this session"
        if not isinstance(index, int | np.integer) or not 0 <= index < column.cells:
            return f"returned an Effect on cell {index!r}, expected one below {column.cells}"
        if not isinstance(delta, int | np.integer) or not -_LARGEST <= delta <= _LARGEST:
            return f"returned an Effect of {delta!r}, expected a whole number"
    return ""


def objection_to_extension(extension: object, view: SessionView) -> tuple[str, str]:
    """Return the name of a wrong field of ``extension`` and the objection to it; two empty texts for a sound one.

    A plugin may put anything into a field. Unchecked, the engine would fail at it in the middle of a cycle.
    """
    for name, is_function in _LOOKED_AT[type(extension)]:
        value = getattr(extension, name)
        if value is None and name not in _NEEDED:
            continue
        if is_function:
            objection = "" if callable(value) else _instead(value, "a function")
        else:
            objection = _field(name, value, view)
        if objection:
            return name, objection.replace("returned", "found", 1)
    return "", ""


def _looked_at(kind: type[object]) -> tuple[tuple[str, bool], ...]:
    """Return the fields of an extension class to check, and whether each holds a function."""
    names = [field.name for field in attrs.fields(cast("type[attrs.AttrsInstance]", kind))]
    found = [(name, name in _FUNCTIONS and (kind, name) != (Domains, "groups")) for name in names]
    return tuple((name, is_function) for name, is_function in found if is_function or name in _VALUES)


def _field(name: str, value: object, view: SessionView) -> str:
    shapes = len(view.snapshot.shapes)
    if name in {"concerns", "single"}:
        return _array(np.bool_, value, shapes)
    if name == "groups":
        return _array(np.bool_, value, len(view.snapshot.groups))
    if name == "batch":
        return _batch(value, view)
    if name == "transitions":
        return _transitions(value, view)
    if name == "depends":
        return "" if isinstance(value, Dependence) else _instead(value, "a Dependence")
    wanted = f"a text for each of {shapes} shapes"
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != shapes:
        return _instead(value, wanted)
    wrong = next((each for each in value if not isinstance(each, str)), None)
    return "" if wrong is None else f"found {wrong!r} among texts, expected {wanted}"


def _batch(value: object, view: SessionView) -> str:
    if not isinstance(value, Batch):
        return _instead(value, "a Batch")
    room = cast("object", value.room)
    if not isinstance(room, Tracked) or not view.has_column(room) or room.initial.ndim != _TABLE:
        return f"{_instead(room, 'a column [A, D] of the session')} as room"
    asks, cells = room.initial.shape
    nodes = len(view.nodes)
    if value.domains is None and cells != nodes:
        return f"returned room [{asks}, {cells}], expected a number for each of {nodes} nodes"
    if value.domains is not None:
        if objection := _table(value.domains, np.int64, (asks, nodes)):
            return f"{objection} as domains"
        if value.domains.size and not -1 <= value.domains.min() <= value.domains.max() < cells:
            return f"returned a domain up to {value.domains.max()}, expected cells below {cells}, or -1"
    if value.measured is not None and (objection := _array(np.bool_, value.measured, asks)):
        return f"{objection} as measured"
    if value.refill is not None and (objection := _array(np.int64, value.refill, asks)):
        return f"{objection} as refill"
    objection = _array(np.int64, value.ask, len(view.snapshot.shapes))
    if not objection and (value.ask >= asks).any():
        objection = f"returned the ask {value.ask.max()}, expected one below {asks}"
    return objection


def _transitions(value: object, view: SessionView) -> str:
    if not isinstance(value, Transitions):
        return _instead(value, "Transitions")
    for column, name, count in (
        (value.states, "states", len(view.nodes)),
        (value.holdings, "holdings", len(view.snapshot.pods)),
    ):
        found = cast("object", column)
        if not isinstance(found, Tracked) or not view.has_column(found) or found.initial.shape != (count,):
            return f"{_instead(found, f'a column [{count}] of the session')} as {name}"
    return ""


def _asks(answer: object, _: object, view: SessionView) -> str:
    return _array(np.int64, answer, len(view.snapshot.shapes))


def _read(answer: object, _: object, view: SessionView) -> str:
    return "" if answer is None else _array(np.int64, answer, len(view.nodes))


def _held(answer: object, asked: tuple[Any, ...], _: object) -> str:
    return _array(np.int64, answer, len(asked[0]))


def _count(answer: object, *_: object) -> str:
    if answer is None or (isinstance(answer, np.ndarray) and answer.dtype == np.int64 and answer.ndim == _TABLE):
        return ""
    return _instead(answer, "int64[A, D] or None")


def _parts(answer: object, _: object, view: SessionView) -> str:
    if isinstance(answer, np.ndarray) and answer.dtype == np.int64 and answer.ndim == _TABLE + 1:
        return "" if answer.shape[1] == len(view.nodes) else _instead(answer, f"int64[A, {len(view.nodes)}, C]")
    return _instead(answer, "int64[A, N, C]")


def _rates(answer: object, _: object, view: SessionView) -> str:
    if not isinstance(answer, Rates):
        return _instead(answer, "Rates")
    shape = (len(answer.scores), len(view.nodes))
    objection = _table(answer.scores, np.float64, shape) or _table(answer.ends, np.bool_, shape)
    return objection.replace("found", "returned", 1)


def _taken(answer: object, asked: tuple[Any, ...], view: SessionView) -> str:
    """Check what pods got: a detail for each, and changes that stay within columns of the session."""
    if not isinstance(answer, Taken):
        return _instead(answer, "a Taken")
    if len(answer.details) != len(asked[0]):
        return f"returned {len(answer.details)} details, expected one for each of {len(asked[0])} pods"
    for column, cells, amounts in answer.changes:
        if not isinstance(cast("object", column), Tracked) or not view.has_column(column):
            return "returned changes of a column of no plugin or of an earlier session, expected one of this session"
        objection = _array(np.int64, cells, len(cells)) or _array(np.int64, amounts, len(cells))
        if objection:
            return objection
        if len(cells) and not 0 <= cells.min() <= cells.max() < column.cells:
            return f"returned changes of cells up to {cells.max()}, expected cells below {column.cells}"
    return next(filter(None, map(_detail, answer.details)), "")


_TABLE: Final = 2
"""The number of dimensions of a table."""
_VALUES: Final = frozenset({"batch", "concerns", "groups", "depends", "signatures", "single", "transitions"})
_NEEDED: Final = frozenset({"filter", "score", "must_wait", "admit", "keys", "partition", "propose", "depends"})
"""Fields without which an extension has no function to call."""
_FUNCTIONS: Final = frozenset(
    {
        *("filter", "explain", "score", "must_wait", "admit", "keys", "partition", "tree", "together", "rules_out"),
        *("choose", "recorded", "effects", "lasting_effects", "encode", "credit", "report"),
        *("queues", "groups", "hopeless", "in_vain", "may_reclaim", "before_search", "accept", "propose"),
    }
)
"""The fields of extensions that hold functions."""
_LOOKED_AT: Final[Mapping[type[object], tuple[tuple[str, bool], ...]]] = {
    kind: _looked_at(kind) for kind in get_args(Extension)
}


def objection_to_verdict(answer: object, *_: object) -> str:
    """Return the objection to ``answer`` as a verdict; "" if its reasons have codes that have texts."""
    if not isinstance(answer, Verdict):
        return _instead(answer, "a Verdict")
    for reason in cast("tuple[object, ...]", answer.reasons):
        if not isinstance(reason, Reason):
            return _instead(reason, "Reasons in a Verdict")
        code = cast("object", reason.code)
        if not isinstance(code, Code | Words):
            return f"returned the code {code!r}, expected a Code or Words in a Verdict"
    return ""


def _texts(answer: object, asked: tuple[Any, ...], _: SessionView) -> str:
    """Check a filter's explanations of refused nodes: one text for each."""
    count = len(asked[1])
    wanted = f"a text for each of {count} nodes"
    if not isinstance(answer, Sequence | np.ndarray) or isinstance(answer, str):
        return _instead(answer, wanted)
    if len(answer) != count:
        return f"returned {len(answer)}, expected {wanted}"
    wrong = next((each for each in answer if not isinstance(each, str)), None)
    return "" if wrong is None else f"returned {wrong!r} among texts, expected {wanted}"


def _instead(answer: object, wanted: str) -> str:
    found = f"{answer.dtype}{list(answer.shape)}" if isinstance(answer, np.ndarray) else type(answer).__name__
    return f"returned {found}, expected {wanted}"


def _array(dtype: type[np.generic], answer: object, count: int) -> str:
    if isinstance(answer, np.ndarray) and answer.dtype == dtype and answer.shape == (count,):
        return ""
    return _instead(answer, f"{dtype.__name__.rstrip('_')}[{count}]")


def _by_row(answer: object, asked: tuple[Any, ...], _: SessionView) -> str:
    """Check a mask over the rows that were the hook's argument besides a pod or a group."""
    return _array(np.bool_, answer, len(asked[1]))


def _scores(answer: object, asked: tuple[Any, ...], _: SessionView) -> str:
    """Check scores: they are finite, because an infinite score would cancel those of all other plugins."""
    count = len(asked[1])
    if objection := _array(np.float64, answer, count):
        return objection
    scores = cast("Scores", answer)
    infinite = np.isinf(scores)
    if not infinite.any():
        return ""
    found = f"returned {scores[infinite][0]} for {np.count_nonzero(infinite)} of {count} nodes"
    return f"{found}, expected finite scores, or NaN to take a node out"


def _keys(answer: object, asked: tuple[Any, ...], _: SessionView) -> str:
    """Check keys: numbers in one or two dimensions, with a row for each item to order.

    NaN is neither less nor more than another number, so one NaN would make the order of all items depend on the
    algorithm.
    """
    count = len(asked[0])
    try:
        keys = np.asarray(cast("Any", answer), np.float64)
    except (TypeError, ValueError):
        keys = np.zeros(())
    if keys.ndim not in (1, 2) or keys.shape[0] != count:
        return _instead(answer, f"float64[{count}, k]")
    unordered = np.isnan(keys)
    if not unordered.any():
        return ""
    rows = unordered if keys.ndim == 1 else unordered.any(axis=1)
    return f"returned NaN for {np.count_nonzero(rows)} of {count}, expected keys that can be ordered"


def _partition(answer: object, _: tuple[Any, ...], view: SessionView) -> str:
    if answer is None:
        return ""
    if not isinstance(answer, Partition):
        return _instead(answer, "a Partition or None")
    parts, scores, verdict = cast("tuple[object, object, object]", (answer.parts, answer.scores, answer.verdict))
    if not isinstance(parts, Sequence):
        return _instead(parts, "a sequence as parts of a Partition")
    for part in parts:
        if not isinstance(part, np.ndarray) or part.dtype != np.int64 or part.ndim != 1:
            return _instead(part, "int64[n] as part of a Partition")
    rows = np.concatenate(parts) if parts else view.nodes
    if not _are_rows(rows, len(view.nodes)):
        wrong = rows.min() if rows.min() < 0 else rows.max()
        return f"returned {wrong} as a node of a part, expected a row below {len(view.nodes)}"
    if scores is not None and (objection := _array(np.float64, scores, len(view.nodes))):
        return f"{objection} as scores of a Partition"
    objection = objection_to_verdict(verdict)
    return objection and f"{objection} of a Partition"


def _tree(answer: object, _: tuple[Any, ...], view: SessionView) -> str:
    """Check a tree of domains, because a kernel walks up its parents and indexes arrays with its numbers."""
    if answer is None:
        return ""
    if not isinstance(answer, DomainTree):
        return _instead(answer, "a DomainTree or None")
    for name, objection in _objections_to_tree(answer, len(view.nodes)):
        if objection:
            return f"returned a DomainTree whose {name} is not right: {objection.replace('returned', 'found', 1)}"
    return ""


def _objections_to_tree(tree: DomainTree, nodes: int) -> Iterator[tuple[str, str]]:
    """Yield fields of ``tree``, each with the objection to it, "" for none; a field may rely on those before it."""
    starts = _ascending(tree.start)
    yield "start", "" if starts[:2] == [0, 1] else _found(tree.start, "rows that ascend from 0, 1")
    domains, finest = starts[-1], len(starts) - 2
    yield "rows", _array(np.int64, tree.rows, np.size(tree.rows))
    are_nodes = _are_rows(tree.rows, nodes) and bool((np.diff(tree.rows) > 0).all())
    yield "rows", "" if are_nodes else _found(tree.rows, f"rows below {nodes} that ascend")
    yield "domains", _array(np.int64, tree.domains, len(tree.rows))
    yield "domains", "" if _are_rows(tree.domains, domains) else _found(tree.domains, f"numbers below {domains}")
    yield "parents", _array(np.int64, tree.parents, domains)
    least, below = np.repeat([-1, *starts[:-2]], np.diff(starts)), np.repeat([0, *starts[1:-1]], np.diff(starts))
    is_above = bool(((least <= tree.parents) & (tree.parents < below)).all())
    yield "parents", "" if is_above else _found(tree.parents, "-1, then domains that are one depth up")
    for name, lowest in (("coarsest", 0), ("ordered", -1), ("preferred", -1)):
        depth = getattr(tree, name)
        is_depth = _is_whole(depth) and lowest <= depth <= finest
        yield name, "" if is_depth else _found(depth, f"a depth from {lowest} to {finest}")
    yield "step", "" if _is_finite(tree.step) else _found(tree.step, "a finite number")


def _ascending(numbers: object) -> list[int]:
    """Return ``numbers`` as a list if they are whole and ascend, else an empty one."""
    found = list(numbers) if isinstance(numbers, Sequence | np.ndarray) else []
    return found if all(map(_is_whole, found)) and all(map(operator.lt, found, found[1:])) else []


def _is_whole(value: object) -> bool:
    # A bool is an int in Python, and a plugin that answers True means no number.
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(np.isfinite(value))


def _found(value: object, wanted: str) -> str:
    return f"found {reprlib.repr(value.tolist() if isinstance(value, np.ndarray) else value)}, expected {wanted}"


def _report(answer: object, _: tuple[Any, ...], view: SessionView) -> str:
    if not isinstance(answer, Mapping):
        return _instead(answer, "a mapping by node row")
    for row, fields in answer.items():
        if not isinstance(row, int | np.integer) or not 0 <= row < len(view.nodes):
            return f"returned {row!r} as a node, expected a row below {len(view.nodes)}"
        if not isinstance(fields, Mapping):
            return _instead(fields, "a mapping of fields for each node")
    return ""


def _queues(answer: object, _: tuple[Any, ...], view: SessionView) -> str:
    objection = "" if answer is None else _array(np.bool_, answer, len(view.snapshot.queues))
    return objection and f"{objection} or None"


def _detail(answer: object, *_: object) -> str:
    """Check a detail: it is stored and compared with a victim's as a whole, so equal details must compare equal."""
    if isinstance(answer, bool | np.bool_ | np.ndarray):
        return _instead(answer, "a detail, or None to refuse the node")
    if isinstance(answer, float) and not np.isfinite(answer):
        return f"returned {answer}, expected a detail that is equal to itself"
    return ""


def _credit(answer: object, asked: tuple[Any, ...], _: SessionView) -> str:
    count = len(asked[1])
    is_right = isinstance(answer, np.ndarray) and answer.dtype == np.int64 and answer.shape == (2, count)
    return "" if is_right else _instead(answer, f"int64[2, {count}]")


def _fields(answer: object, *_: object) -> str:
    """Check the fields of a bind request: values that JSON has, or records that have a wire format."""
    return _instead(answer, "a mapping of fields") if not isinstance(answer, Mapping) else _unwritable(answer, "")


def _unwritable(value: object, path: str) -> str:
    """Return the objection to a value within ``value`` that JSON cannot hold; "" for none."""
    if value is None or isinstance(value, _ON_THE_WIRE):
        return ""
    if isinstance(value, float):
        return "" if np.isfinite(value) else f"returned {value} as {path}, expected a finite number"
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            return f"returned {wrong!r} as a field{path and f' of {path}'}, expected a text"
        inner = ((each, f"{path}.{key}" if path else str(key)) for key, each in value.items())
    elif isinstance(value, list | tuple):
        inner = ((each, f"{path}[{at}]") for at, each in enumerate(value))
    else:
        return f"{_instead(value, 'a value as JSON has it')} as {path}"
    return next(filter(None, (_unwritable(each, where) for each, where in inner)), "")


_LARGEST: Final = 2**62
_ON_THE_WIRE: Final = (str, int, *WIRE_RECORDS)


def _one_of(words: str, *kinds: type[object]) -> Check:
    return lambda answer, _, __: "" if isinstance(answer, kinds) else _instead(answer, words)


_CHECKS: Final[Mapping[str, Check]] = {
    "NodeFilter.filter": _by_row,
    "NodeFilter.explain": _texts,
    "NodeScore.score": _scores,
    "NodeWait.must_wait": _by_row,
    "PodFilter.admit": objection_to_verdict,
    "PodOrder.keys": _keys,
    "GroupOrder.keys": _keys,
    "Domains.partition": _partition,
    "Domains.tree": _tree,
    "Domains.together": _one_of("a Together or None", Together, type(None)),
    "Domains.rules_out": _one_of("a bool", bool, np.bool_),
    "Batch.count": _count,
    "Batch.parts": _parts,
    "Batch.rate": _rates,
    "Batch.take": _taken,
    "Transitions.asks": _asks,
    "Transitions.held": _held,
    "Transitions.read": _read,
    "Placement.choose": _detail,
    "Placement.recorded": _detail,
    "Placement.effects": objection_to_effects,
    "Placement.lasting_effects": objection_to_effects,
    "Placement.encode": _fields,
    "Placement.credit": _credit,
    "Placement.report": _report,
    "Victims.queues": _queues,
    "Victims.groups": _by_row,
    "Victims.hopeless": _one_of("a bool", bool, np.bool_),
    "Victims.in_vain": _one_of("a bool", bool, np.bool_),
    "Victims.may_reclaim": objection_to_verdict,
    "Victims.accept": objection_to_verdict,
}
