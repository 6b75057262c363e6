"""Programs that a kubeconfig file names for making credentials: what to say where one is not there, or fails.

They are installed beside kubectl (``aws``, ``gke-gcloud-auth-plugin``, ``kubelogin``), so a machine that gets a copy of
a kubeconfig file lacks them first of all. The file itself is right then, and nothing in it is to be mended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kai.errors import ConfigError, on_one_line
from kai.lenient import mapping_of
from kai.notation import shown

_LONGEST: Final = 300
_INSTALL: Final = "install it, or add the folder it is in to PATH; --context chooses another cluster and user"


def program_failed(error: Exception, fields: object, field: str) -> ConfigError | None:
    """Return what is wrong with the program of a user; None where the user has none, or it is not at fault.

    ``fields`` are what a kubeconfig file says of the user, ``field`` where it names the program. Of what the program
    wrote, nothing is told from the first object on: it may be a token.
    """
    program = mapping_of(fields, "exec")
    command = program.get("command")
    if not isinstance(command, str):
        return None
    wanted = "expected a program that makes credentials"
    if isinstance(error, OSError) and error.filename in {None, command}:
        if isinstance(error, FileNotFoundError):
            why, helps = "was not found", _hint(program)
        elif isinstance(error, PermissionError):
            why, helps = "may not be run", f"chmod +x {command}"
        else:
            why, helps = f"cannot be run ({_cut(str(error.strerror or error))})", ""
        return ConfigError(f"{field}: found {shown(command)}, which {why}, {wanted}", help=helps)
    words = str(error)
    if not words.startswith("exec: "):
        return None
    why = _cut(words.removeprefix("exec: ").partition("{")[0].strip())
    return ConfigError(f"{field}: found {shown(command)}, which failed ({why}), {wanted}")


def _hint(program: Mapping[str, Any]) -> str:
    """Return what the file itself says about installing the program, as kubectl does, or what helps with any."""
    hint = program.get("installHint")
    return _cut(hint) if isinstance(hint, str) and hint.strip() else _INSTALL


def _cut(text: str) -> str:
    words = on_one_line(" ".join(text.split()))
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"
