"""Write random scenarios: ``python -m tests.generate --help``."""

from pathlib import Path

import click

from tests.generate.features import FREQUENCIES, Chosen, UnknownFeatureError, parse_features
from tests.generate.laws import broken_laws
from tests.generate.scenario import generate, write_text


def _features(_: click.Context, __: click.Parameter, text: str) -> Chosen:
    try:
        return parse_features(text)
    except UnknownFeatureError as error:
        raise click.BadParameter(str(error)) from error


@click.command(
    help="Write COUNT random clusters as scenarios; file N is the same whatever range it is made in.",
    epilog=f"Features: {', '.join(FREQUENCIES)}.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the first scenario; the others count up.")
@click.option("--count", default=1, show_default=True, type=click.IntRange(min=1), help="How many scenarios.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to write into.")
@click.option(
    "--features",
    "chosen",
    default="all",
    show_default=True,
    callback=_features,
    help="What may vary: 'all', 'all,-dra', 'gangs,mig' (in every scenario), 'all,+numa'.",
)
def main(seed: int, count: int, out: Path, chosen: Chosen) -> None:
    """Write the scenarios, each checked against the laws of a valid cluster first."""
    out.mkdir(parents=True, exist_ok=True)
    for each in range(seed, seed + count):
        scenario = generate(each, chosen)
        if broken := broken_laws(scenario):
            raise click.ClickException(f"seed {each}: {'; '.join(broken)}")
        (out / f"{scenario['name']}.yaml").write_text(write_text(scenario), encoding="utf-8")
    click.echo(f"{count} scenarios in {out}", err=True)


if __name__ == "__main__":
    main()
