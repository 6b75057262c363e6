"""Which grouper serves which kind.

Groupers are found by the entry point group ``kai.groupers``, installed or from the tree: a tree is used through an
editable install (``uv pip install -e . --no-deps``), which is what makes its entry points visible. Precedence, first
match: the exact kind; the kind in any version; a declaration (Karta); the default grouper.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import TypeGuard

from kai.errors import ConfigError, PluginError, told
from kai.podgrouper.grouper import DEFAULT, Grouper, Groupers
from kai.podgrouper.settings import KindPattern

ENTRY_POINTS = "kai.groupers"


def load_groupers() -> Groupers:
    """Return every installed grouper.

    Raises: ConfigError when none is installed, or two claim one kind. PluginError when an entry point does not lead to
        a grouper.
    """
    return assemble((point.name, _load(point)) for point in entry_points(group=ENTRY_POINTS))


def assemble(groupers: Iterable[tuple[str, Grouper]]) -> Groupers:
    """Return the registry of named ``groupers``.

    Raises: ConfigError as ``load_groupers`` does.
    """
    by_name: dict[str, Grouper] = {}
    for name, grouper in sorted(groupers, key=lambda named: named[0]):
        if name in by_name:
            raise ConfigError(f'entry points "{ENTRY_POINTS}": found "{name}" twice, expected each name once')
        by_name[name] = grouper
    if DEFAULT not in by_name:
        raise ConfigError(
            f'entry points "{ENTRY_POINTS}": found {", ".join(by_name) or "none"}, expected "{DEFAULT}" among them; '
            "is the project installed (`uv pip install -e . --no-deps` from the tree)?"
        )
    claims: dict[KindPattern, str] = {}
    for name, grouper in by_name.items():
        for pattern in grouper.kinds:
            if pattern in claims:
                raise ConfigError(f'kind {pattern}: claimed by groupers "{claims[pattern]}" and "{name}", expected one')
            claims[pattern] = name
    return Groupers(by_name, {pattern: by_name[name] for pattern, name in claims.items()})


def _load(point: EntryPoint) -> Grouper:
    hook = f'entry point of "{ENTRY_POINTS}"'
    try:
        made = point.load()()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may raise anything when it is imported, and leave the process
        raise PluginError(f"cannot be made: {told(error)}", plugin=point.name, hook=hook) from error
    if not _is_grouper(made):
        raise PluginError(f"{point.value} lacks `kinds` or `draft`, which a grouper has", plugin=point.name, hook=hook)
    return made


def _is_grouper(made: object) -> TypeGuard[Grouper]:
    kinds = getattr(made, "kinds", None)
    is_listed = isinstance(kinds, tuple) and all(isinstance(each, KindPattern) for each in kinds)
    return is_listed and callable(getattr(made, "draft", None))
