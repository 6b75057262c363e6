"""Errors as a person meets them: one line that says what is wrong, one that helps, and an exit code."""

import sys
import tempfile
import traceback

from kai.errors import ConfigError, InputError, InvariantError, KaiError, PluginError, UnreachableError

NO, USAGE, UNREACHABLE, INPUT, BUG, INTERRUPTED = 1, 2, 3, 4, 5, 130


def say(text: str) -> None:
    """Write one line of talk to standard error."""
    sys.stderr.write(text + "\n")


def say_error(message: str, hint: str = "", detail: str = "") -> None:
    """Write an error and, if there is one, what was tried, and a hint."""
    say(f"error: {message}")
    if detail:
        say(f"  {detail}")
    if hint:
        say(f"  help: {hint}")


def report_error(error: KaiError) -> int:
    """Say what is wrong and return the exit code: 3 for the cluster, 4 for what was given to kai, 5 for kai itself."""
    findings = getattr(error, "findings", None)
    if findings:
        from kai.cli.findings import finding_text

        for finding in findings:
            say(finding_text(finding))
        return INPUT
    if isinstance(error, ConfigError | InputError):
        *first, last = error.messages
        for message in first:
            say_error(message)
        say_error(last, str(getattr(error, "help", "")))
        return INPUT
    if isinstance(error, UnreachableError):
        say_error(str(error), error.help, error.detail)
        return UNREACHABLE
    if isinstance(error, InvariantError | PluginError):
        return report_bug(error, str(error))
    say_error(str(error))
    return INPUT


def report_bug(error: Exception, subject: str) -> int:
    """Say in one line that something failed that should not have, and where the details are."""
    text = "".join(traceback.format_exception(error))
    where = ""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="kai-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(f"{subject}\n\n{text}")
            where = file.name
    except OSError:
        say(text)
    told = str(error).splitlines()[0] if str(error) else ""
    whose = "" if isinstance(error, PluginError) else "this is a bug of kai: "
    say_error(f"{whose}{type(error).__name__}: {told}", f"details are in {where}" if where else "")
    return BUG
