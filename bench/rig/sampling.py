"""Where a process spends its time: py-spy's samples, by function."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

WAIT = "acquire_with_timeout (gevent"
"""Where an idle thread of gevent's pool stands."""


def top_functions(pid: int, seconds: int, count: int = 10) -> list[str]:
    """The ``count`` functions with most samples of their own (native code counts for its caller).

    Samples at 200 Hz while the process is on a core. When py-spy may not attach (ptrace needs
    root or CAP_SYS_PTRACE), one line says so.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "stacks"
        command = [str(Path(sys.executable).parent / "py-spy"), "record", "--format", "raw"]
        command += ["--rate", "200", "--duration", str(seconds), "--pid", str(pid)]
        done = subprocess.run(
            [*command, "--output", str(out)], capture_output=True, text=True, timeout=seconds + 60
        )
        if done.returncode or not out.exists():
            return [f"py-spy could not sample: {done.stderr.strip()[-300:]}"]
        return busiest(out.read_text(), count)


def busiest(stacks: str, count: int) -> list[str]:
    """Functions with the largest share of samples, from lines ``outer;…;inner samples``.

    A stack's innermost frame counts; its line number does not: the function is what is ranked.
    Waiting threads of gevent's pool, which py-spy takes for busy, are left out.
    """
    samples: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, number = line.rpartition(" ")
        function = re.sub(r":\d+\)$", ")", stack.rpartition(";")[2])
        if not function.startswith(WAIT):
            samples[function] += int(number)
    total = samples.total()
    return [f"{n / total:6.1%}  {function}" for function, n in samples.most_common(count)]
