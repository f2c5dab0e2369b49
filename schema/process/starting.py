"""What may go wrong while a process imports: Ctrl-C, and a package that is missing.

This module is imported first, and takes no time itself. Importing takes up to a second, and Ctrl-C
during it would print a traceback.
"""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_held = False
"""True if :func:`begin` decided what Ctrl-C does."""


def begin(program: str) -> None:
    """Let Ctrl-C end the process silently, and report a missing package in one line.

    ``program`` begins that line. If Ctrl-C is already handled, as by a shell for programs in the
    background, nothing is changed.
    """
    global _held
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _held = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The executable blocks the signal before: from here on Ctrl-C prints no traceback.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

    def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        what = missing(error)
        if what:
            print(f"{program}: {what}", file=sys.stderr)
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = told


def done() -> None:
    """All is imported: let Ctrl-C raise KeyboardInterrupt again."""
    global _held
    if _held and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _held = False


def missing(error: BaseException) -> str:
    """Say what to do about a package that could not be imported; "" for every other error.

    Our own modules are not meant: if one of them is missing, that is a bug.
    """
    if not isinstance(error, ImportError) or not error.name:
        return ""
    package = error.name.partition(".")[0]
    if package == "greencrawl" or package in sys.stdlib_module_names:
        return ""
    how = "no" if isinstance(error, ModuleNotFoundError) else "only a part of"
    return f"there is {how} Python package {package!r}{_mend()}"


def _mend() -> str:
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    if (root / "Procfile").is_file():
        where = f"{root}/.venv"
        if Path(sys.prefix) == Path(where):
            return f": {where} is not complete; delete it and run `make setup` in {root}"
        return f" for {sys.executable}; run {where}/bin/python, which `make setup` makes"
    return f" in {sys.prefix}; install greencrawl there again"
