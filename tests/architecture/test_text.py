"""What no tracked file may say: where packages come from, where it was written, and silence about a silenced rule."""

import re

import pytest

from tests.architecture.source import tracked_texts

# Written in pieces, so that this file does not break its own rule.
REGISTRIES = re.compile(
    "|".join(
        re.escape(".".join(parts))
        for parts in [
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("npmjs", "org"),
            ("crates", "io"),
            ("proxy", "golang", "org"),
            ("deb", "debian", "org"),
            ("repo1", "maven", "org"),
        ]
    )
)
# An absolute path below the home of a person or of a build machine. Files copied from elsewhere keep theirs.
MACHINE_PATH = re.compile(r"(?<![\w.$}~)*-])/(?:root|work|Users|home/(?!kai\b)\w+)/")
COPIED = ("tests/conformance/", "tests/samples/", "examples/")


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    return list(tracked_texts())


def lines_with(texts: list[tuple[str, str]], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{place}:{number}"
        for place, text in texts
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_file_names_a_package_registry(texts: list[tuple[str, str]]) -> None:
    assert not lines_with(texts, REGISTRIES), "which index serves a package is the machine's setting, not the project's"


def test_no_file_names_a_path_of_one_machine(texts: list[tuple[str, str]]) -> None:
    own = [(place, text) for place, text in texts if not place.startswith(COPIED)]
    assert not lines_with(own, MACHINE_PATH)


def test_a_silenced_rule_is_named_with_the_reason(texts: list[tuple[str, str]]) -> None:
    bare = [
        f"{place}:{number}"
        for place, text in texts
        if place.endswith(".py") and not place.startswith("tests/architecture/")
        for number, line in enumerate(text.splitlines(), start=1)
        if not gives_reason(line)
    ]
    assert not bare, f"write `# noqa: CODE - why` or `# type: ignore[code]  # why`: {bare}"


def gives_reason(line: str) -> bool:
    found = re.search(r"#\s*(?:noqa|type:\s*ignore)(.*)$", line)
    if found is None:
        return True
    codes = re.match(r":\s*[A-Z]+\d+(?:\s*,\s*[A-Z]+\d+)*|\[[\w, -]+\]", found.group(1))
    return codes is not None and len(found.group(1)[codes.end() :].strip(" #-—:")) >= len("a reason")


@pytest.mark.parametrize(
    ("line", "accepted"),
    [
        ("x = 1", True),
        ("x = 1  # noqa", False),
        ("x = 1  # noqa: S101", False),
        ("x = 1  # noqa: S101, E501 - the message must stay on one line", True),
        ("x = 1  # type: ignore", False),
        ("x = 1  # type: ignore[arg-type]", False),
        ("x = 1  # type: ignore[arg-type]  # the stub is wrong about None", True),
    ],
)
def test_the_check_wants_a_code_and_a_reason(line: str, accepted: bool) -> None:  # noqa: FBT001 - a table's column
    assert gives_reason(line) is accepted
