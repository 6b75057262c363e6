"""Experiments on other machines, through an existing Dask scheduler: the same function, the same results.

The files of an experiment travel with it, so that workers need only kai itself, in the same version. A worker writes
them into a temporary folder; results and errors name them as on this machine.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from kai.basics.errors import ConfigError, InputError, UnreachableError, load_extra
from kai.basics.progress import report
from kai.lab.virtual.experiments import Done, Experiment, carry_out
from kai.lab.virtual.scenes.loading import files_of
from kai.manifests import Finding, RefusedError

SCHEME: Final = "dask://"
DISTRIBUTION: Final = "kai-scheduler"
_PATIENCE: Final = "10s"
"""Timeout for a scheduler that does not answer."""

Files = Mapping[str, bytes]
"""Contents by the path below the folder of an input."""


@attrs.frozen(kw_only=True)
class Parcel:
    """An input in transit: one file, or a folder of files."""

    path: str
    is_folder: bool
    files: Files

    @classmethod
    def of(cls, path: str) -> Parcel:
        """Return the input at a path; a missing one travels empty, so that reading it reports the error."""
        place = Path(path)
        # The bytes travel and not the path: workers share no file system with this machine.
        found = {str(each.relative_to(place)) if each != place else "": each.read_bytes() for each in files_of(place)}
        return cls(path=path, is_folder=place.is_dir(), files=found)

    def unpack(self, folder: Path) -> str:
        """Write the input below a folder under its own name, and return the path."""
        place = folder / Path(self.path).resolve().name
        if self.is_folder:
            place.mkdir(parents=True)
        for name, data in self.files.items():
            at = place / name if name else place
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(data)
        return str(place)


def carry_out_on(address: str, experiments: Sequence[Experiment], version: str) -> tuple[Done, ...]:
    """Return the results of experiments, in their order, carried out by the workers of a Dask scheduler.

    ``version`` is the local version of kai, which workers must have as well.
    Holds: the results are those of ``carry_out_all``, except for the seconds of computing.
    Raises: UnreachableError for a scheduler that does not answer or has no workers, ConfigError where Dask is missing
        or a worker has no kai or another version, and as ``carry_out``.
    """
    distributed = require_dask()
    place = "tcp://" + address.removeprefix(SCHEME)
    try:
        client = distributed.Client(place, timeout=_PATIENCE, set_as_default=False, name="kai")
    except (OSError, TimeoutError, ValueError) as error:
        said = str(error).partition("\n")[0] or type(error).__name__
        raise UnreachableError(
            f"--on {address}: found no Dask scheduler, expected one that answers", detail=said
        ) from None
    with client:
        _check_workers(client, address, version)
        parcels = {path: Parcel.of(path) for path in _paths(experiments)}
        # Once for all experiments: a trace of a gigabyte would otherwise travel with each of a hundred runs.
        sent = {path: client.scatter(parcel, hash=False) for path, parcel in parcels.items()}
        futures = [
            client.submit(
                carry_out_there,
                each,
                sent[each.workload],
                None if each.cluster is None else sent[each.cluster],
                # Dask would give equal tasks one result, computed once.
                pure=False,
            )
            for each in experiments
        ]
        return _gathered(
            distributed.as_completed(futures, loop=client.loop),
            futures,
            f"simulating {len(experiments)} runs on {address}",
        )


def require_dask() -> Any:  # noqa: ANN401 - an extra without types
    """Return the Dask client library.

    Raises: ConfigError that says how to install it, where it is missing.
    """
    return load_extra("distributed", "dask", "--on: experiments are sent by dask")


def _paths(experiments: Sequence[Experiment]) -> list[str]:
    found = (path for each in experiments for path in (each.workload, each.cluster) if path is not None)
    return list(dict.fromkeys(found))


def _check_workers(client: Any, address: str, wanted: str) -> None:  # noqa: ANN401 - a client of Dask
    """Check that there are workers, and that each has this version of kai."""
    # A function of the standard library, because a worker without kai must be able to run it.
    found = client.run(importlib.import_module("importlib.metadata").version, DISTRIBUTION, on_error="return")
    if not found:
        raise UnreachableError(f"--on {address}: found no worker at this Dask scheduler, expected some")
    for worker, version in sorted(found.items()):
        if isinstance(version, BaseException):
            raise ConfigError(
                f"--on {address}: worker {worker}: found no kai-scheduler, expected {wanted}, as it is here"
            )
        if version != wanted:
            raise ConfigError(
                f"--on {address}: worker {worker}: found kai-scheduler {version}, expected {wanted}, as it is here"
            )


def _gathered(ended: Iterable[Any], futures: Sequence[Any], what: str) -> tuple[Done, ...]:
    """Return the results in the order of their futures, and report progress."""
    report(what, 0, len(futures), "")
    for count, future in enumerate(ended, start=1):
        if future.status == "error":
            error = future.exception()
            for each in futures:
                each.cancel()
            raise error
        report(what, count, len(futures), "")
    return tuple(future.result() for future in futures)


# --- On the worker -------------------------------------------------------------------------------------------------


def carry_out_there(experiment: Experiment, workload: Parcel, cluster: Parcel | None) -> Done:
    """Carry out an experiment with the files that came with it.

    Raises: as ``carry_out``, with the file names of the machine that sent the experiment.
    """
    with tempfile.TemporaryDirectory(prefix="kai-") as folder:
        here = workload.unpack(Path(folder) / "workload")
        names = {here: workload.path}
        there = None
        if cluster is not None:
            there = cluster.unpack(Path(folder) / "cluster")
            names[there] = cluster.path
        try:
            done = carry_out(attrs.evolve(experiment, workload=here, cluster=there))
        except RefusedError as error:
            raise RefusedError([_named(each, names) for each in error.findings]) from None
        except (InputError, ConfigError) as error:
            raise type(error)(*(_renamed(text, names) for text in error.messages)) from None
    inputs = attrs.evolve(done.result.inputs, workload=experiment.workload, cluster=experiment.cluster)
    result = attrs.evolve(done.result, inputs=inputs)
    return attrs.evolve(done, result=result, findings=tuple(_named(each, names) for each in done.findings))


def _named(finding: Finding, names: Mapping[str, str]) -> Finding:
    texts: dict[str, Any] = {
        field.name: _renamed(value, names)
        for field in attrs.fields(Finding)
        if isinstance(value := getattr(finding, field.name), str)
    }
    return attrs.evolve(finding, **texts)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for here, there in names.items():
        text = text.replace(here, there)
    return text
