"""Which grouper serves which kind.

Groupers are found by the entry point group ``kai.groupers``, installed or from the tree: a tree is used through an
editable install (``uv pip install -e . --no-deps``), which is what makes its entry points visible. Precedence, first
match: a rule of the configuration; the exact kind; the kind in any version; a declaration (Karta); the default grouper.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import TypeGuard

from kai.errors import ConfigError, PluginError
from kai.podgrouper.grouper import DEFAULT, Grouper, Groupers, is_declared
from kai.podgrouper.settings import KindPattern, Settings

ENTRY_POINTS = "kai.groupers"


def load_groupers(settings: Settings) -> Groupers:
    """Return every installed grouper, and the kinds that ``settings`` assign to them.

    Raises: ConfigError when none is installed, two claim one kind, or a rule names an unknown one. PluginError when an
        entry point does not lead to a grouper.
    """
    return assemble(((point.name, _load(point)) for point in entry_points(group=ENTRY_POINTS)), settings)


def assemble(groupers: Iterable[tuple[str, Grouper]], settings: Settings) -> Groupers:
    """Return the registry of named ``groupers`` under the rules of ``settings``.

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
    for grouper in by_name.values():
        if is_declared(grouper):
            grouper.check(settings)
    claims: dict[KindPattern, str] = {}
    for name, grouper in by_name.items():
        for pattern in grouper.kinds:
            if pattern in claims:
                raise ConfigError(f'kind {pattern}: claimed by groupers "{claims[pattern]}" and "{name}", expected one')
            claims[pattern] = name
    for rule in settings.kind_rules:
        if rule.grouper not in by_name:
            raise ConfigError.about(
                f"kind {rule.pattern}", "grouper", found=rule.grouper, wanted=f"one of {', '.join(by_name)}"
            )
        claims[rule.pattern] = rule.grouper
    return Groupers(by_name, {pattern: by_name[name] for pattern, name in claims.items()})


def _load(point: EntryPoint) -> Grouper:
    hook = f'entry point of "{ENTRY_POINTS}"'
    try:
        made = point.load()()
    except (ImportError, AttributeError, TypeError) as error:
        raise PluginError(f"cannot be made: {error}", plugin=point.name, hook=hook) from error
    if not _is_grouper(made):
        raise PluginError(f"{point.value} lacks `kinds` or `draft`, which a grouper has", plugin=point.name, hook=hook)
    return made


def _is_grouper(made: object) -> TypeGuard[Grouper]:
    kinds = getattr(made, "kinds", None)
    is_listed = isinstance(kinds, tuple) and all(isinstance(each, KindPattern) for each in kinds)
    return is_listed and callable(getattr(made, "draft", None))
