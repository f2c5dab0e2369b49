"""``python -m greencrawl.worker``: the supervisor of a worker.

``--child N`` is one of its processes, and ``--metrics`` the process that serves metrics.
``--quarantine`` is the process in which a child has suspects read. The supervisor uses no
greenlets, because it forks and waits for signals. The server of metrics uses none either; all other
processes use greenlets.
"""

from greencrawl.schema.process import starting

starting.begin("worker")

import sys

from greencrawl.schema import garbage

garbage.starting()

if "--child" in sys.argv or "--quarantine" in sys.argv:
    from greencrawl.schema.greenlets import patch_all

    patch_all()

from greencrawl.schema import log
from greencrawl.schema.errors import NO_ROOM, FrontierMismatch, GreencrawlError, InvalidConfig
from greencrawl.schema.process.folder import folder_text
from greencrawl.schema.settings import Settings, changed, load
from greencrawl.worker.process import supervisor


def _child(settings: Settings, number: int) -> int:
    """Run one process.

    It ends with ``EX_CONFIG`` if a restart would not help, with ``EX_NO_ROOM`` on a full disk.
    """
    from greencrawl.worker import child

    try:
        return child.main(settings, number)
    except (InvalidConfig, FrontierMismatch) as error:
        print(f"worker: {error}", file=sys.stderr)
        return supervisor.EX_CONFIG
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        log.logger("worker").error(
            "disk_space_exhausted",
            data=str(settings.data),
            error=str(error),
            advice="make room there; the worker tries again within ten seconds",
        )
        return supervisor.EX_NO_ROOM


def _quarantine(settings: Settings, descriptor: int) -> int:
    from greencrawl.worker.process import quarantine

    garbage.started()
    return quarantine.main(descriptor)


def _metrics(settings: Settings, descriptor: int) -> int:
    from greencrawl.worker.metrics import exporter

    garbage.started()
    try:
        exporter.serve(settings, supervisor.folder(settings), descriptor)
    except InvalidConfig as error:
        exporter.log.error("metrics_not_served", reason=str(error))
        return supervisor.EX_CONFIG
    return 0


_PARTS = {"--child": _child, "--quarantine": _quarantine, "--metrics": _metrics}


def main(arguments: list[str]) -> int:
    """Return the exit status: 2 for bad arguments or settings, 1 when the worker gave up."""
    match arguments:
        case []:
            part, number = "", 0
        case [part, text] if part in _PARTS and text.isdigit():
            number = int(text)
        case _:
            print("usage: python -m greencrawl.worker (settings: GREENCRAWL_*)", file=sys.stderr)
            return 2
    try:
        settings = load()
    except InvalidConfig as error:
        print(f"worker: {error}", file=sys.stderr)
        return 2
    named = f"-{number}" if part == "--child" else part.removeprefix("-")
    log.configure(f"worker{named}", settings.log_level)
    if part:
        return _PARTS[part](settings, number)
    log.logger("supervisor").info("settings_loaded", **changed(settings))
    garbage.started()
    try:
        return supervisor.Supervisor(settings).run()
    except InvalidConfig as error:
        print(f"worker: {error}", file=sys.stderr)
        return 2
    except GreencrawlError as error:
        print(f"worker: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if not (what := folder_text(error, settings.data)):
            raise
        print(f"worker: {what}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
