"""``python -m tests.guards.trial NAME``: run a state machine, or a test, once, in this checkout.

The last line says what was found. The exit code is ``GREEN``, ``RED`` if something is wrong, or
``WRONG`` if the code itself broke down, which proves nothing.
"""

from gevent import monkey

monkey.patch_all()

import importlib  # noqa: E402
import sys  # noqa: E402
from collections.abc import Iterator  # noqa: E402

import pytest  # noqa: E402
from hypothesis import Phase, settings  # noqa: E402
from hypothesis import errors as hypothesis_errors  # noqa: E402

from tests.guards.table import GREEN, MACHINES, RED, WRONG  # noqa: E402

EXAMPLES = 25


class Noted:
    """An exception of a test, from pytest."""

    error: BaseException | None = None

    @pytest.hookimpl
    def pytest_exception_interact(self, call: pytest.CallInfo[object]) -> None:
        assert call.excinfo is not None
        self.error = self.error or call.excinfo.value


def machine(name: str) -> BaseException | None:
    """Run a state machine for 25 examples; return the exception that it raised. A failing example
    is not made smaller."""
    importlib.import_module("tests.conftest")
    settings.register_profile("guards", phases=[Phase.generate], database=None, derandomize=False)
    settings.load_profile("guards")
    try:
        importlib.import_module(MACHINES[name]).run_machine(EXAMPLES)
    except Exception as error:  # noqa: BLE001
        return error
    return None


def test(name: str) -> BaseException | None:
    noted = Noted()
    code = pytest.main([name, "-q", "--no-header", "--durations=0"], plugins=[noted])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return noted.error
    return RuntimeError(f"pytest ended with {code!r}")


def all_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its parts: a failure that does not repeat is wrapped."""
    yield error
    for one in getattr(error, "exceptions", ()):
        yield from all_of(one)


def main() -> int:
    name = sys.argv[1]
    error = machine(name) if name in MACHINES else test(name)
    if error is None:
        print("nothing was found")
        return GREEN
    failures = (AssertionError, pytest.fail.Exception)
    for one in all_of(error):
        if isinstance(one, failures):
            print(" ".join(str(one).split()) or "an assertion failed")
            return RED
    if isinstance(error, hypothesis_errors.Flaky):  # it depends on time: no failure, no breakdown
        print("hypothesis gave up on an example that went otherwise when tried again")
        return GREEN
    print(type(error).__name__, " ".join(str(error).split()))
    return WRONG


if __name__ == "__main__":
    sys.exit(main())
