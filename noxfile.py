"""Every check has one name here, the same for a person and for CI: ``make test`` runs the default sessions.

Started by make, nox runs inside ``.venv`` and all sessions use that one environment: each of them needs numba, numpy
and the whole of kai, and six copies would cost minutes and a gigabyte without finding anything more. Started from
anywhere else, nox builds an environment for each session from the same pinned requirements.
"""

import os
import sys
from functools import cache
from pathlib import Path

import nox

ROOT = Path(__file__).parent.resolve()
SHARED = Path(sys.prefix).resolve() == ROOT / ".venv"

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "none" if SHARED else "virtualenv"
# The suite comes last, so that its closing lines are among the last that are printed.
nox.options.sessions = ["lint", "contracts", "types", "nojit", "integration", "tests"]
nox.options.error_on_missing_interpreters = True

INTEGRATION = "tests/integration"
OTHER_VERSIONS = ("1.35", "1.37")
IMAGE = "tests/image"
# A process for each core, four at most, and tests parted evenly. What is named after ``--`` runs in one process.
EVENLY = ("--numprocesses=auto", "--maxprocesses=4", "--dist=worksteal")

# What runs through kernels, and is therefore run again as plain Python.
NOJIT = [
    "tests/kernels",
    "tests/properties",
    "tests/scenarios",
    "tests/unit/actions",
    "tests/unit/deciding/engine",
    "tests/unit/framework",
    "tests/unit/facts/kernels",
    "tests/unit/facts/state",
]
# Of these, what imports no kernel: it would run the same twice (tests/architecture/test_kernels.py looks).
NO_KERNEL = [
    "tests/properties/test_light_roles.py",
    "tests/unit/facts/state/test_memory.py",
]
# And what tries the compiler, in programs that do not take over what this session says: the same twice as well.
COMPILING = ["tests/unit/facts/kernels/test_cache.py"]


@cache
def install(session: nox.Session) -> None:
    """Install the pinned packages and kai, once: a session may put others in their place."""
    session.install("--require-hashes", "--requirement", "requirements/dev.txt")
    session.install("--no-deps", "--no-build-isolation", "--editable", ".")


def python(session: nox.Session, *args: str, env: dict[str, str] | None = None) -> None:
    """Run ``python *args`` in the session's environment, installing the pinned packages first where it has its own."""
    shared = SHARED and session.python is None
    if not shared:
        install(session)
    # Bytecode is kept even where the caller keeps none: each process of pytest would rewrite all tests, and each
    # program that they start compile all of kai.
    variables = {"PYTHONDONTWRITEBYTECODE": "", **(env or {})}
    session.run(sys.executable if shared else "python", *args, env=variables, external=shared)


@nox.session
def lint(session: nox.Session) -> None:
    """Check format and rules with ruff."""
    python(session, "-m", "ruff", "check", ".")
    python(session, "-m", "ruff", "format", "--check", ".")


@nox.session
def contracts(session: nox.Session) -> None:
    """Check who imports whom."""
    python(session, "-c", "from importlinter.cli import lint_imports_command as check; check(['--no-logo'])")


@nox.session
def types(session: nox.Session) -> None:
    """Check types strictly: the package, benchmarks, plugins of examples, the simulation of services, tests/typing."""
    python(session, "-m", "mypy", *session.posargs)


@nox.session
def nojit(session: nox.Session) -> None:
    """Run the tests of the engine with kernels as plain Python: results must not depend on the compiler."""
    chosen = session.posargs or [path for path in NOJIT if (ROOT / path).exists()]
    if not chosen:
        session.skip("none of the folders it runs exists yet")
    # Plain kernels are a hundred times slower; many examples are for the compiled run.
    workers = () if session.posargs else (*EVENLY, *(f"--ignore={path}" for path in (*NO_KERNEL, *COMPILING)))
    env = {"NUMBA_DISABLE_JIT": "1", "HYPOTHESIS_PROFILE": "plain"}
    python(session, "-m", "pytest", "-q", *workers, *chosen, env=env)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the suite, or what is named after ``--``, but what runs on a real API server only if it is named."""
    apart = [part for part in (INTEGRATION, IMAGE) if not any(part in each for each in session.posargs)]
    rest = tuple(f"--ignore={part}" for part in apart)
    if not session.posargs:
        rest = (*rest, *EVENLY)
        python(session, "-m", "kai", "warm")  # once, rather than in each of the processes
    python(session, "-m", "pytest", *rest, *session.posargs)


@nox.session(venv_backend="virtualenv", python=["3.12", "3.13"])
def newer(session: nox.Session) -> None:
    """Check types and run the suite with newer versions of Python, for which the pins have a newer numpy as well."""
    python(session, "-m", "mypy")
    tests(session)


@nox.session(venv_backend="virtualenv", python="3.11")
def oldest(session: nox.Session) -> None:
    """Run the suite with the oldest libraries that pyproject.toml allows."""
    oldest_of_all = ("--upgrade", "--resolution=lowest-direct", "--editable=.[dask,postgresql,report,traces,tracing]")
    python(session, "-m", "uv", "pip", "install", *oldest_of_all)
    tests(session)


@nox.session(venv_backend="virtualenv")
def newest(session: nox.Session) -> None:
    """Compile and compare all kernels with the newest release of each library, numba included, bounds set aside."""
    install(session)
    session.install("--upgrade", "numba", "numpy", "attrs", "cattrs", "aiohttp", "anyio", "kubernetes_asyncio")
    session.run("python", "-m", "kai", "warm")
    session.run("python", "-m", "pytest", "tests/kernels", "tests/unit/facts", *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """Run the cases with a known right answer only."""
    python(session, "-m", "pytest", "tests/conformance", *session.posargs)


@nox.session
def integration(session: nox.Session) -> None:
    """Run the roles on a real control plane; building its programs takes minutes, the first time.

    Three at a time, since the tests mostly wait for each other's programs; ``-- --numprocesses=0`` runs one by one.
    """
    on_kubernetes(session, "", *session.posargs)


@nox.session
def versions(session: nox.Session) -> None:
    """Run the integration tests on the other versions of Kubernetes that kai is tried on: 1.35 and 1.37.

    ``-- 1.37`` chooses one, and what follows goes to pytest: ``-- 1.37 -k test_claims``.
    """
    chosen = [each for each in session.posargs if each in OTHER_VERSIONS]
    rest = [each for each in session.posargs if each not in OTHER_VERSIONS]
    for version in chosen or OTHER_VERSIONS:
        on_kubernetes(session, version, *rest)


def on_kubernetes(session: nox.Session, version: str, *args: str) -> None:
    """Run the integration tests on a version of Kubernetes, the usual one if it is empty."""
    env = {"KAI_TEST_KUBERNETES": version}
    python(session, "-m", "tests.integration.programs", env=env)
    # Once, rather than by every program that the tests start before the first of them has kept anything.
    python(session, "-m", "kai", "warm")
    # Modules go out in the order of tests/integration/conftest.py, not those with the most tests first.
    spread = ("--numprocesses=3", "--dist=loadscope", "--no-loadscope-reorder")
    python(session, "-m", "pytest", INTEGRATION, *spread, *args, env=env)


@nox.session
def chaos(session: nox.Session) -> None:
    """Kill and freeze kai under load, and at each of its writes, and have it decide on old knowledge; over a night.

    Without arguments it makes 1,000 kills or some more, 42 of them at writes, and 500 plans on old knowledge.
    ``-- --seed 2 --report chaos.json`` makes 100 kills at other moments, and writes the figures to a file;
    ``-- --points`` tries only what can go wrong at each kind of write, ``-- --stale 50`` only plans on old knowledge.
    """
    python(session, "-m", "tests.integration.programs")
    python(session, "-m", "kai", "warm")
    python(session, "-m", "tests.integration.chaos", *(session.posargs or ["--restarts", "800", "--standbys", "160"]))
    if not session.posargs:
        python(session, "-m", "tests.integration.chaos", "--points")
        python(session, "-m", "tests.integration.chaos", "--stale", "500")


@nox.session
def upgrades(session: nox.Session) -> None:
    """Upgrade from an earlier revision and roll back, fifty times under load on a real API server; half an hour.

    ``-- --upgrades 10 --from v0.1.0`` chooses how often, and from which revision.
    """
    python(session, "-m", "tests.integration.programs")
    python(session, "-m", "kai", "warm")
    python(session, "-m", "tests.integration.chaos", *(session.posargs or ["--upgrades", "50"]))


@nox.session
def soak(session: nox.Session) -> None:
    """Let kai work for two hours beside 100,000 pods on a real API server, and say how what it holds grows.

    ``-- --hours 8 --pods 1000`` chooses how long and how large. ``-- --virtual-days 30`` takes virtual time instead: an
    hour of it costs some seconds.
    """
    if "--virtual-days" not in session.posargs:
        python(session, "-m", "tests.integration.programs")
    python(session, "-m", "kai", "warm")
    python(session, "-m", "tests.soak", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Give decoders 200,000 inputs, guided by the ways that these take through kai; some minutes of processor.

    ``-- --first 7`` draws others, ``-- --target query`` is for one decoder, and ``-- --keep`` adds to the corpus.
    """
    python(session, "-m", "tests.fuzz", "--guided", "--objects", "200000", *session.posargs)


@nox.session
def nightly(session: nox.Session) -> None:
    """Give decoders a million objects, see whether 10,000 contended clusters come to rest, and let virtual time pass.

    That is 10,000 schedules of faults, and 30 days of work. 100,000 clusters of devices and as many pods are compared
    with Kubernetes' own code of two versions, and the victims of 5,000 clusters with the best ones. The integration
    tests on Kubernetes 1.35 and 1.37 come first.
    ``-- --seeds 1..500`` chooses other schedules, and nothing else; ``-- --bugs`` plants deliberate bugs instead, and
    tells which are caught.
    """
    python(session, "-m", "kai", "warm")
    if not session.posargs:
        versions(session)
        python(session, "-m", "tests.fuzz", "--objects", "1000000")
        python(session, "-m", "tests.fuzz", "--guided", "--objects", "200000")
        python(session, "-m", "tests.properties.resting")
        python(session, "-m", "tests.victims")
        python(session, "-m", "tests.soak", "--virtual-days", "30")
        python(session, "-m", "tests.simulation", "--flips", "--seeds", "1..2000")
        python(session, "-m", "tests.upstream")
    python(session, "-m", "tests.simulation", *(session.posargs or ["--seeds", "1..10000"]))


@nox.session
def image(session: nox.Session) -> None:
    """Build the image with buildah, as root, and run each role from it; ten minutes, so no default session.

    Without a registry the base is made by mmdebstrap. What is missing here is said in a line.
    """
    python(session, "-m", "tests.integration.programs")
    python(session, "-m", "tests.image.building")
    python(session, "-m", "pytest", IMAGE, *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Measure which lines and branches the suite runs, with the JIT off so that kernels count."""
    python(session, "-m", "coverage", "erase")
    # What runs in processes of its own is not measured.
    chosen = session.posargs or [f"--ignore={INTEGRATION}", f"--ignore={IMAGE}"]
    python(session, "-m", "coverage", "run", "-m", "pytest", *chosen, env={"NUMBA_DISABLE_JIT": "1"})
    python(session, "-m", "coverage", "combine")
    python(session, "-m", "coverage", "report")


@nox.session
def bench(session: nox.Session) -> None:
    """Time cycles and commands, compare with the revision before; arguments go to ``benchmarks run``."""
    python(session, "-m", "benchmarks", "run", *(session.posargs or ["targets", "--check", "--runs", "3"]))
    if not session.posargs:
        python(session, "-m", "benchmarks.asked", "--check")
        python(session, "-m", "benchmarks", "against", "HEAD~1", "targets")
        python(session, "-m", "benchmarks.shortcut_gains")


@nox.session(venv_backend="virtualenv")
def docs(session: nox.Session) -> None:
    """Build the site; a broken link is an error. It alone needs its tools, so they stay out of ``.venv``."""
    session.install("--require-hashes", "--requirement", "requirements/docs.txt")
    session.run("mkdocs", "build", "--strict", "--site-dir", str(ROOT / "build" / "site"))


@nox.session(venv_backend="virtualenv")
def sbom(session: nox.Session) -> None:
    """Write bills of materials of the wheel and, where it is built, of the image: CycloneDX, in ``build/sbom``."""
    session.install("--require-hashes", "--requirement", "requirements/sbom.txt")
    session.run("python", "-m", "tests.image.contents", str(ROOT / "build" / "sbom"))


@nox.session
def release(session: nox.Session) -> None:
    """Build wheel and source distribution twice, state where they come from, sign and verify: ``build/release``.

    ``KAI_SIGNING_KEY`` names the key (docs/security.md); ``-- --throw-away-key`` makes one to try the way.
    """
    python(session, "-m", "tests.release", *session.posargs)


@nox.session
def changelog(session: nox.Session) -> None:
    """Show the next release's changelog from its fragments, or write it: ``nox -s changelog -- --version 0.2.0``."""
    python(session, "-m", "towncrier", "build", *(session.posargs or ["--draft", "--version", "unreleased"]))


@nox.session
def lock(session: nox.Session) -> None:
    """Compile requirements/*.txt from pyproject.toml: pinned, hashed, naming no package index.

    Versions that are pinned stay unless ``-- --upgrade`` is given.
    """
    options = [
        "--quiet",
        "--universal",
        "--python-version=3.11",
        "--generate-hashes",
        "--no-emit-index-url",
        "--no-emit-find-links",
        "--custom-compile-command=nox -s lock",
        *session.posargs,
    ]
    compile_ = ["-m", "uv", "pip", "compile", "pyproject.toml", *options]
    env = {"UV_SYSTEM_CERTS": os.environ.get("UV_SYSTEM_CERTS", "1")}
    runtime = ["--constraint", "requirements/runtime.txt"]
    # The image is made of these. It has the driver of the server that replicas share, which others install themselves.
    driver = ["--extra", "postgresql"]
    python(session, *compile_, *driver, "--output-file", "requirements/runtime.txt", env=env)
    extras = ["--all-extras"]  # what each extra adds is tested
    python(session, *compile_, *extras, "--group", "dev", *runtime, "--output-file", "requirements/dev.txt", env=env)
    for group in ("docs", "sbom"):
        alone = ["-m", "uv", "pip", "compile", *options, "--group", group]
        python(session, *alone, "--output-file", f"requirements/{group}.txt", env=env)
