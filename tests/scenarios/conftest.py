"""Every YAML file below this folder is a test: a scenario in the short form, named after the behaviour it states."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kai.basics.errors import KaiError
from kai.testing import check_scenario


class Differs(Exception):  # noqa: N818 - never leaves this file
    """The outcome is not what the scenario expects."""


class ScenarioFile(pytest.File):
    """A file with one scenario."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the scenario."""
        yield ScenarioItem.from_parent(self, name=self.path.stem)


class ScenarioItem(pytest.Item):
    """One scenario."""

    def runtest(self) -> None:
        """Run it and compare."""
        found = check_scenario(self.path)
        if found:
            raise Differs("\n".join(found))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: str | None = None) -> object:
        """Show what differs without a traceback: the scenario says the rest."""
        if isinstance(excinfo.value, Differs | KaiError):
            return f"{self.path.read_text(encoding='utf-8')}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the scenario is and what it is called."""
        return self.path, 0, self.name.replace("-", " ")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take YAML files as scenarios."""
    if file_path.suffix == ".yaml":
        return ScenarioFile.from_parent(parent, path=file_path)
    return None
