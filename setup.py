"""Compiles the part in C while a wheel is built, if it can; pyproject.toml has all the rest.

pip builds with an lxml of its own choice, the newest. The name of what is compiled has a digest of
that lxml, so with another one it is never loaded, and ``python -m
greencrawl.worker.extract.compile`` compiles for that one. The reasons are in
docs/decisions/0057-pip-compiles-the-part-in-c.md.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

SOURCES = Path(__file__).resolve().parent / "src"
EXTRACT = "greencrawl.worker.extract"
MADE = "greencrawl_speedups_*"


def compile_into(folder: Path) -> str:
    """Compile the part in C into ``folder``; return "", or why that failed.

    It needs lxml only, so the modules are imported without their package, which needs more.
    """
    sys.path.insert(0, str(SOURCES))
    package = ModuleType(EXTRACT)
    package.__path__ = [str(SOURCES.joinpath(*EXTRACT.split(".")))]
    sys.modules[EXTRACT] = package
    problem: str = import_module(f"{EXTRACT}.compile").compile(folder)
    return problem


class Build(build_py):
    """Copies the modules, and compiles beside them what can be compiled."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib)
        for old in folder.glob(MADE):
            old.unlink()
        try:
            problem = compile_into(folder)
        except ImportError as error:
            problem = str(error)
        if problem:
            print(f"the part in C was not compiled: {problem}", file=sys.stderr)


class Wheel(bdist_wheel):
    """A wheel for this Python and machine if something was compiled, else for all."""

    def get_tag(self) -> tuple[str, str, str]:
        self.root_is_pure = not any(Path(self.bdist_dir).glob(MADE))
        return super().get_tag()


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel})
