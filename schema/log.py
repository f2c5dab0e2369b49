"""Structured logs on standard error: one line an event, in JSON if it is not a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TextIO, cast

from greencrawl.schema.clock import Clock, monotonic

# Where they are installed, structlog imports these packages: for renderers that are not used here,
# and for Windows. They take 7 MB in each process. The command, which draws with rich, spends a
# fifth of its start on them. None stands for a module that cannot be found.
_UNUSED = ("rich", "twisted", "colorama")
_loaded = {name: sys.modules[name] for name in _UNUSED if name in sys.modules}
sys.modules.update(dict.fromkeys(_UNUSED))  # type: ignore[arg-type]
try:
    import structlog
finally:
    for _name in _UNUSED:
        del sys.modules[_name]
    sys.modules.update(_loaded)


class _StandardError:
    """Writes each line to the present standard error, which may have been replaced.

    A line is written in one call with its end, because other processes write there, too. If it
    cannot be written, as on a full disk, it is lost: logging never ends a process.
    """

    def write(self, text: str) -> int:
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


_FACTORY = structlog.WriteLoggerFactory(cast(TextIO, _StandardError()))
structlog.configure(  # until configure(): never to standard output, and without values of variables
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S"),
        structlog.processors.format_exc_info,
        structlog.dev.ConsoleRenderer(),
    ],
    logger_factory=_FACTORY,
)


Sink = Callable[[str], None]
"""A function that takes a line as JSON; it may be called from any thread, and must not raise."""

_sink: Sink | None = None
_json = structlog.processors.JSONRenderer()
_console = structlog.dev.ConsoleRenderer()


def attach(sink: Sink | None) -> None:
    """Give each line to ``sink`` as well from now on; None: to no sink."""
    global _sink
    _sink = sink


def _as_json(given: object, method: str, event: structlog.types.EventDict) -> str:
    text = str(_json(given, method, event))
    if _sink is not None:
        _sink(text)
    return text


def _for_people(given: object, method: str, event: structlog.types.EventDict) -> str:
    if _sink is not None:
        _sink(str(_json(given, method, event)))
    return str(_console(given, method, event))  # the renderer changes the event


class _Logger(structlog.BoundLoggerBase):
    """The base class of loggers; its methods are those of the current level."""


def set_level(level: str) -> None:
    """Log only events of ``level`` or above from now on; existing loggers follow, too."""
    number = logging.getLevelNamesMapping()[level.upper()]
    for name, method in vars(structlog.make_filtering_bound_logger(number)).items():
        if callable(method):
            setattr(_Logger, name, method)


def configure(process: str, level: str = "info") -> None:
    """Set up logging for this process. Call once, in ``__main__``.

    ``process`` is added to every line; ``level`` is one of debug, info, warning, error.
    """
    renderer = _for_people if sys.stderr.isatty() else _as_json

    def name_process(
        _logger: object, _method: str, event: structlog.types.EventDict
    ) -> structlog.types.EventDict:
        event["process"] = process  # a context variable would have another value in each greenlet
        return event

    set_level(level)
    structlog.configure(
        processors=[
            name_process,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=_Logger,
        logger_factory=_FACTORY,
        cache_logger_on_first_use=True,
    )


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger that binds ``part=name``."""
    log: structlog.stdlib.BoundLogger = structlog.get_logger(part=name)
    return log


SAY_SECONDS = 60.0
"""Seconds between two lines about a failure that goes on."""


class Trouble:
    """Logs a repeated failure: one line when it begins, one a minute while it lasts, and one when
    it is over.

    ``event`` and ``over`` are what these lines say. ``lasted`` in them are seconds from the first
    failure on, ``times`` counts failures. The beginning of a failure that comes and goes is logged
    at most once a minute, too.
    """

    def __init__(
        self,
        log: structlog.stdlib.BoundLogger,
        event: str,
        over: str,
        *,
        level: Literal["info", "warning"] = "warning",
        clock: Clock = monotonic,
    ) -> None:
        self._log, self._event, self._over = log, event, over
        self._level, self._clock = level, clock
        self._times = 0
        self._since = 0.0
        self._said_at = -SAY_SECONDS
        self._said = False

    def failed(self, **details: object) -> None:
        """Note a failure; ``details`` are for the line."""
        now = self._clock()
        if not self._times:
            self._since = now
        self._times += 1
        if now - self._said_at >= SAY_SECONDS:
            self._said_at, self._said = now, True
            since = {"lasted": round(now - self._since), "times": self._times}
            getattr(self._log, self._level)(
                self._event, **details, **(since if self._times > 1 else {})
            )

    def done(self, **details: object) -> None:
        """Note a success."""
        if self._said:
            lasted = round(self._clock() - self._since, 1)
            self._log.info(self._over, **details, lasted=lasted, times=self._times)
        self._times, self._said = 0, False
