"""Two things that may happen while a process imports: Ctrl-C, and a package that is not there.

To be imported first, and itself in no time: importing takes up to a second, and an interrupt in it
would show where Python just was.
"""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_held = False
"""Whether Ctrl-C ends the process by our doing."""


def begin(program: str) -> None:
    """Ctrl-C ends the process without a word, and a package that is missing is told in one line.

    ``program`` begins that line. Where somebody else decides about Ctrl-C, as a shell does for what
    runs in the background, nothing is changed.
    """
    global _held
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _held = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The executable blocks it before: only from here on would nobody see where Python was.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

    def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        what = missing(error)
        if what:
            print(f"{program}: {what}", file=sys.stderr)
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = told


def done() -> None:
    """All is imported: Ctrl-C is a KeyboardInterrupt again."""
    global _held
    if _held and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _held = False


def missing(error: BaseException) -> str:
    """What to do about a package that could not be imported; "" for every other error.

    Our own modules are not meant: that one of them is missing is a fault of ours.
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
            return f": {where} is not complete; run `make setup` in {root}"
        return f" for {sys.executable}; run {where}/bin/python, which `make setup` makes"
    return f" in {sys.prefix}; install greencrawl there again"
