"""The command ``greencrawl``: its groups of commands, and the output of their errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextvars import copy_context
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

import click

from greencrawl import __version__
from greencrawl.cli import env_file
from greencrawl.cli.ui import advice
from greencrawl.schema.errors import NO_ROOM, GreencrawlError, InvalidConfig, Refused
from greencrawl.schema.process import starting

_TOKEN = "; set GREENCRAWL_ADMIN_TOKEN to the broker's"


_COMMANDS = {
    "crawl": "commands.crawl",
    "up": "commands.up",
    "seed": "commands.seed",
    "status": "commands.status",
    "pages": "commands.pages",
    "page": "commands.pages",
    "changes": "reading.changes",
    "versions": "reading.versions",
    "diff": "reading.versions",
    "extract": "reading.extract",
    "explain": "commands.explain",
    "dead": "commands.dead",
    "traps": "commands.traps",
    "logs": "reading.logs",
    "hooks": "commands.hooks",
    "login": "commands.login",
    "pause": "commands.operate",
    "resume": "commands.operate",
    "stop": "commands.operate",
    "set": "admin.change",
    "purge": "commands.operate",
    "delete": "commands.operate",
    "nodes": "admin.nodes",
    "order": "admin.nodes",
    "drain": "admin.nodes",
    "repair": "admin.repair",
    "export": "commands.export",
    "migrate": "admin.migrate",
    "store": "admin.store",
}
"""Command → the module in this folder with a function of its name.

Only the module of the called command is imported: all of them take half a second.
"""

_FAILED = {"diff": 2}
"""Exit codes for a failure of commands for which 1 has another meaning."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        found: click.Command = getattr(import_module(f"greencrawl.cli.{_COMMANDS[name]}"), name)
        starting.done()
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            matches = get_close_matches(args[0], _COMMANDS)
            if not matches:
                raise
            more = f" Did you mean {' or '.join(matches)}?"
            raise click.UsageError(f"{error.message}{more}", ctx) from None


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="greencrawl", message="%(prog)s %(version)s")
def greencrawl() -> None:
    """Greencrawl is a distributed web crawler. To begin, run `greencrawl crawl URL`.

    Settings of the processes (addresses, tokens, folders) are GREENCRAWL_* environment variables,
    which may be in a file .env in the current folder; docs/configuration.md lists them.
    """


def main(arguments: Sequence[str] | None = None, env_files: Sequence[Path] = ()) -> int:
    """Run the command; return the exit code: 1 for a failure (2 for `diff`), 2 for wrong use.

    Variables in ``env_files`` are added to the environment unless they are set.
    """
    # The command runs in a copy of the context, so that its notes for advice end with it.
    return copy_context().run(_main, arguments, env_files)


def _main(arguments: Sequence[str] | None, env_files: Sequence[Path]) -> int:
    called = sys.argv[1:] if arguments is None else arguments
    failed = _FAILED.get(called[0], 1) if called else 1
    try:
        env_file.take(env_files, os.environ)
        code = greencrawl.main(arguments, prog_name=advice.command(), standalone_mode=False)
    except click.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except InvalidConfig as error:
        _complain(error)
        return 2
    except Refused as error:
        _complain(error, _TOKEN if error.status in (401, 403) else "")
        return failed
    except GreencrawlError as error:
        _complain(error)
        return failed
    except BrokenPipeError:
        # The reader of our output has closed it; the interpreter must not try to flush the rest.
        sys.stdout = None
        return 1
    except OSError as error:
        if error.errno not in NO_ROOM or error.filename is not None:
            raise
        sys.stdout = None  # as above
        click.echo(f"greencrawl: cannot write the output: {error.strerror}", err=True)
        return failed
    return code if isinstance(code, int) else 0


def _complain(error: GreencrawlError, more: str = "") -> None:
    said = advice.complete(" ".join(str(error).split()))
    click.echo(f"greencrawl: {said}{more}", err=True)
