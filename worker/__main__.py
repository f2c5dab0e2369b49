"""``python -m worker``: the supervisor of a worker host; ``--child N`` is one of its processes.

The supervisor is plain Python on purpose (signals, waitpid); only children are made of greenlets.
"""

import sys

if "--child" in sys.argv:
    from gevent import monkey

    monkey.patch_all()

from schema import log
from schema.errors import FrontierMismatch, GreencrawlError, InvalidConfig
from schema.settings import Settings, load, masked
from worker import supervisor


def _child(settings: Settings, number: int) -> int:
    """Run one process; what a restart would not mend ends it with ``EX_CONFIG``."""
    from worker import child

    try:
        return child.main(settings, number)
    except (InvalidConfig, FrontierMismatch) as error:
        print(f"worker: {error}", file=sys.stderr)
        return supervisor.EX_CONFIG


def main(arguments: list[str]) -> int:
    """Returns the exit status: 2 for bad arguments or settings, 1 when the worker gave up."""
    is_child = arguments[:1] == ["--child"] and len(arguments) == 2 and arguments[1].isdigit()
    if arguments and not is_child:
        print("usage: python -m worker (settings: GREENCRAWL_*)", file=sys.stderr)
        return 2
    try:
        settings = load()
    except InvalidConfig as error:
        print(f"worker: {error}", file=sys.stderr)
        return 2
    log.configure(f"worker-{arguments[1]}" if is_child else "worker", settings.log_level)
    if is_child:
        return _child(settings, int(arguments[1]))
    log.logger("supervisor").info("settings", **masked(settings))
    try:
        return supervisor.Supervisor(settings).run()
    except GreencrawlError as error:
        print(f"worker: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
