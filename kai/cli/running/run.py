"""``kai run``: the live service, all roles in one process or some of them.

Its core dumps exclude the memory of the process, so that a crash leaks no token and no key.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

_FILTER: Final = Path("/proc/self/coredump_filter")
_NOTHING: Final = "0"


def withhold_memory() -> None:
    """Disable core dumps of this process, and exclude its memory from any that are written all the same.

    What remains are the registers of its threads: at most some hundred characters of what each of them last copied. A
    limit of zero does not hold where cores are piped to a program of the node; the excluded memory stays excluded there
    too. Child processes inherit both. An administrator can undo both from outside (``prlimit``, and ``coredump_filter``
    below ``/proc``). Systems other than Linux have the limit alone.

    Source: core(5).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    with contextlib.suppress(OSError):
        _FILTER.write_text(_NOTHING)


# A cycle computes in a thread of its own. With the interpreter's default switch interval of 5 ms, the event loop would
# wait that long for the interpreter lock after every system call; a tenth of it is enough.
_SWITCH_SECONDS = 0.0005

EPILOG = """\b
ROLE is one of scheduler, binder, podgrouper, podgroup-controller,
queue-controller, node-scale-adjuster and admission. Without one, all of them
but admission run in this process. It takes the flags that KAI-Scheduler's
operator writes for each component, in Go's form (--name=value, --name value,
-name).

\b
  kai run scheduler --help          the flags of a role
  kai run --kubeconfig ~/.kube/config
  kai run scheduler --scheduler-conf=/etc/config/config.yaml --leader-elect
  kai run scheduler --config=schedulingshard.yaml
"""


class Run(click.Command):
    """The command with the flags of roles, which it takes in Go's form and not in click's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; ``kai run --help ROLE`` is the same as ``kai run ROLE --help``."""
        asks_first = bool(args) and args[0] in ctx.help_option_names
        return super().parse_args(ctx, [*args[1:], args[0]] if asks_first else args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the flags of the roles typed so far."""
        from kai.cli.running.flags import FLAGS, ROLES, TOGETHER

        roles = {word for word in _words(ctx) if word in ROLES} or set(TOGETHER)
        found = [f"--{name}" for name, flag in FLAGS.items() if roles & flag.roles and not flag.inert]
        return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]


def _complete_roles(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the roles that may follow those typed so far."""
    from kai.cli.running.flags import ROLES

    words = _words(context)
    if not all(word in ROLES for word in words):
        return []
    return [CompletionItem(name) for name in ROLES if name.startswith(begun) and name not in words]


def _words(context: click.Context) -> list[str]:
    return [str(word) for word in context.params.get("arguments") or ()]


@click.command(
    cls=Run,
    epilog=EPILOG,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument(
    "arguments",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[ROLE...] [FLAG...]",
    shell_complete=_complete_roles,
)
def run(arguments: tuple[str, ...]) -> int:
    """Run the service in a cluster."""
    if not {"-h", "--help"}.isdisjoint(arguments):
        from kai.cli.failures import write_out
        from kai.cli.running.rolehelp import help_of, roles_in

        context = click.get_current_context()
        helped = roles_in(arguments)
        write_out((help_of(helped, context.make_formatter().width) if helped else context.get_help()) + "\n")
        return 0
    import anyio

    from kai.cli.running.flags import FLAGS, ROLES, TOGETHER, read_flags
    from kai.cli.running.process import Process
    from kai.cluster.process.logs import set_up_logs

    given = read_flags(arguments, FLAGS, ROLES, TOGETHER)
    named = [name for name in ("v", "zap-log-level", "log-level") if name in given.named]
    set_up_logs(
        verbosity=given.whole(named[0]) if named else given.whole("v"),
        json=given.truth("log-json") or given.text("zap-encoder") == "json",
    )
    withhold_memory()
    sys.setswitchinterval(_SWITCH_SECONDS)
    anyio.run(Process.of(given).run)
    return 0
