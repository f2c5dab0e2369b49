"""``greencrawl migrate``: bring the store's schema up to date, before or after an upgrade."""

from __future__ import annotations

import click

from greencrawl.cli import connecting
from greencrawl.cli.ui import advice
from greencrawl.schema.clock import monotonic
from greencrawl.schema.settings import mask_url
from greencrawl.store import open_upgrade
from greencrawl.store.migrations import Migration


@click.command()
@click.option(
    "--post",
    is_flag=True,
    help="Also apply migrations for which all older processes must have ended.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@connecting.data_option
def migrate(post: bool, dry_run: bool, data: str | None) -> None:
    """Bring the store up to date.

    Run the command before processes of the new version start; older processes may run on. On
    SQLite, and on an empty store, the new processes do this themselves. When all brokers and
    workers are of the new version, run it with --post. On SQLite the next process that has the file
    for itself also does that.
    """
    settings = connecting.load(data)
    where = mask_url(settings.store_url)
    upgrade = open_upgrade(settings.store_url)
    try:
        due = upgrade.pending()
        left = [] if post or _fresh(due) else [one for one in due if one.post]
        if dry_run:
            for one in due:
                verdict = "waits" if one in left else "would be applied"
                click.echo(f"{one}: {verdict}")
        else:
            progress = _Progress()
            upgrade.apply(post=post, told=progress.begin)
            progress.end()
    finally:
        upgrade.close()
    if not due:
        click.echo(f"{where} is up to date")
    elif left:
        click.echo(
            f"{len(left)} left for when no process of an older version runs: "
            + advice.complete("`greencrawl migrate --post`")
        )
    elif not dry_run:
        click.echo(f"{where} is up to date now")


def _fresh(due: list[Migration]) -> bool:
    """Return whether the store is empty. Then no older process runs, and no migration waits."""
    return bool(due) and due[0].base


class _Progress:
    """Prints a line for each migration: its name when it begins, its time when it is over."""

    def __init__(self) -> None:
        self._began = 0.0

    def begin(self, migration: Migration) -> None:
        self.end()
        self._began = monotonic()
        click.echo(f"{migration} … ", nl=False)

    def end(self) -> None:
        if self._began:
            click.echo(f"{monotonic() - self._began:.1f} s")
        self._began = 0.0
