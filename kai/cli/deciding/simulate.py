"""``kai simulate``: read clusters from files, decide, and say who runs where and why not."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from kai.basics.errors import ConfigError, InputError, KaiError
from kai.cli.arguments import GivenPath, cycles_option, is_given, refuse_given, refuse_of_others, refuse_of_traces
from kai.cli.completing import complete_actions
from kai.cli.console import Console, console_options
from kai.cli.failures import INPUT, NO, report_bug, report_error, say_error
from kai.cli.sources import adoption_options

if TYPE_CHECKING:
    from kai.cli.deciding.runs import Wanted
    from kai.lab.comparing.expected_answer import Differences
    from kai.lab.request import Policy, Request

EPILOG = """\
PATH is a scenario, a file or folder of Kubernetes manifests, a snapshot taken by the scheduler
(a zip), or - for standard input. A folder of scenarios is many simulations, and so are several PATHs:
put manifests that belong together into one folder.

\b
  kai simulate examples/lab
  kai simulate snapshot.zip --explain
  kai simulate scenarios/ --check -q

With --until, --cluster or a trace, virtual time passes: workloads arrive, run, end and wait.

\b
  kai simulate examples/lab --until 8h
  kai simulate trace.csv --cluster cluster.csv --policy a.yaml --policy b.yaml
"""
_OF_ONE_MOMENT: Final = {
    "actions": "name them in a file for --policy",
    "cycles": "the time for which it passes is given with --until",
    "now": "a start is given by arrivals that are dates",
    "check": "only the decision of one moment is compared",
    "explain": "only the decision of one moment is explained",
}
"""Flags without effect on a run over virtual time, and what to use instead."""
_OVER_TIME: Final = {"seed": "--seed", "skips_bad_rows": "--skip-bad-rows", "since": "--since", "engine": "--on"}
"""Flags without effect on a decision of one moment; they do not start virtual time either."""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(allow_dash=True, readable=False))
@click.option(
    "--config",
    "config",
    type=GivenPath(),
    help="Scheduler configuration in place of the case's own: in kai's form, in KAI-Scheduler's, or a SchedulingShard.",
)
@click.option(
    "--actions", shell_complete=complete_actions, help="Actions in place of the configured ones, separated by commas."
)
@cycles_option
@click.option("--now", help="When it happens, as 2026-01-31T12:00:00Z; else what the case says, or its newest time.")
@click.option("--check", is_flag=True, help="Only compare with what the scenario expects; leave with 1 if it differs.")
@click.option("--explain", is_flag=True, help="Explain each waiting job and eviction, with verified fixes.")
@click.option("--until", metavar="DURATION", help="Let virtual time pass for so long: 8h, 7d.")
@click.option("--cluster", type=click.Path(), help="The cluster over time: a cluster file, nodes as CSV, a snapshot.")
@click.option("--policy", "policies", multiple=True, type=click.Path(), help="Configuration over time; repeatable.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of all that is drawn by chance.")
@click.option("--sweep", "sweeps", multiple=True, metavar="PATH=A,B", help="A run for each value: plugins.NAME.OPTION.")
@click.option("--skip-bad-rows", "skips_bad_rows", is_flag=True, help="Leave out rows of a trace that cannot be used.")
@click.option("--since", metavar="TIME", help="Begin a trace at this time, as sacct -S, with the jobs that ran then.")
@click.option(
    "--on", "engine", metavar="ADDRESS", help="Carry runs out on a Dask scheduler's workers: dask://HOST:PORT."
)
@click.option("--out", type=click.Path(), help="Where results over time go: a folder, a .json or a .parquet file.")
@click.option("--report", type=click.Path(dir_okay=False), help="Write a page with charts of the runs: lab.html.")
@click.option(
    "--history",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write who used what over time, for kai report: usage.db.",
)
@adoption_options
@console_options()
def simulate(
    paths: tuple[str, ...],
    console: Console,
    config: str | None,
    actions: str | None,
    cycles: int | None,
    now: str | None,
    *,
    check: bool,
    explain: bool,
    **over_time: Any,  # noqa: ANN401 - the flags of runs over time, by the names of the fields of Wanted
) -> int:
    """Run the scheduler on manifests or a snapshot and show its decisions."""
    from kai.cli.deciding.runs import Wanted, asked_again, simulate_over_time
    from kai.lab.request import Request

    given = Wanted(**over_time)
    if config is not None and given.is_over_time(paths[0]):
        given = _under_configuration(given, config)
    again = given.again("simulate", paths[0])
    place, wanted = asked_again(paths[0], given)
    paths = (place, *paths[1:])
    if wanted.is_over_time(paths[0]):
        _refuse_flags_of_one_moment()
        refuse_of_traces(paths[0])
        refuse_of_others(paths[0])
        return simulate_over_time(paths, wanted, console, again)

    refuse_given(_OVER_TIME, "without virtual time", "give --until, --cluster or a trace")
    policy = _policy(config)
    for note in () if policy is None else policy.configuration.notes:
        console.talk(f"note: {note}")
    request = Request.of(policy, actions=actions, cycles=cycles, now=now)
    request = attrs.evolve(request, schedulers=wanted.schedulers, queue_from=wanted.queue_from)
    codes = [_one(path, request, console, check=check, explain=explain) for path in _cases(paths)]
    if check:
        console.talk(f"{codes.count(0)} of {len(codes)} as expected")
    return max(codes, default=0)


def _under_configuration(given: "Wanted", config: str) -> "Wanted":
    """Return the request under a configuration, which is the one policy of a run over time.

    Raises: UsageError where policies are given as well: it would be ambiguous which of them counts.
    """
    if given.policies:
        raise click.UsageError("--config and --policy cannot be used together\ngive each configuration with --policy")
    return attrs.evolve(given, policies=(config,))


def _refuse_flags_of_one_moment() -> None:
    """Refuse flags that virtual time would silently ignore.

    Raises: UsageError.
    """
    refused = [f"--{name}: {instead}" for name, instead in _OF_ONE_MOMENT.items() if is_given(name)]
    if refused:
        flags = " and ".join(each.partition(":")[0] for each in refused)
        raise click.UsageError(f"{flags} cannot be used with virtual time\n{'; '.join(refused)}")


def _policy(path: str | None) -> "Policy | None":
    if path is None:
        return None
    from kai.cli.deciding.policy import load_policy

    return load_policy(path)


def _cases(paths: tuple[str, ...]) -> Iterator[str]:
    """Yield the cases of all paths. A path that does not exist is yielded too; reading it reports the error."""
    from kai.lab.sources.text_files import find_cases

    for path in paths:
        try:
            yield from find_cases(path)
        except InputError:
            yield path


def _one(path: str, request: "Request", console: Console, *, check: bool, explain: bool) -> int:
    """Simulate one case and write the result; a failure is reported and does not stop the other cases."""
    from kai.cli.deciding.report import write_failure, write_result
    from kai.cli.failures import finding_text

    try:
        result = request.run(path)
        differences = result.differences() if check else None
        if console.is_for_machines:
            _ = result.answer  # computed lazily; computing it here confines a bug to this case
    except (ConfigError, InputError) as error:
        write_failure(path, error, console)
        return report_error(error)
    except KaiError as error:
        write_failure(path, error, console)
        return report_bug(error, path)
    except Exception as error:  # noqa: BLE001 - a bug in one case becomes one line and a file
        write_failure(path, error, console)
        return report_bug(error, path)
    for finding in result.findings:
        console.talk(finding_text(finding))
    for doubt in result.doubts:
        console.talk(f"note: {path}: {doubt}")
    for unused in result.unused:
        console.talk(f"note: {path}: {unused}")
    said = request.policy.configuration.notes if request.policy is not None else ()
    for note in (each for each in result.notes if each not in said):
        # Ignored settings change decisions, so they are always shown; ignored objects seldom do, so they need -v.
        console.talk(f"note: {path}: {note}", level=0 if "usageDBConfig" in note else 1)
    write_result(result, console, differences=differences, explain=explain)
    if result.is_mute:
        say_error(f"{path}: found workloads for this scheduler, and no job came of them")
    code = INPUT if result.is_mute or result.is_refused else 0
    return code or _code_of(path, differences)


def _code_of(path: str, differences: "Differences | None") -> int:
    """Return the exit code of a comparison; without one it is 0."""
    if differences is None:
        return 0
    if differences.unknown:
        say_error(f'{path} has no "expect" or "expected"; --check has nothing to compare')
        return INPUT
    return NO if differences.found else 0
