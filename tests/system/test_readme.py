"""The README and its Chinese twin have the same commands, headings and figures, and all are
true."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import zip_longest
from pathlib import Path

import pytest

from greencrawl.cli.main import greencrawl
from tests.support.checkout import ROOT

ENGLISH = ROOT / "README.md"
CHINESE = ROOT / "docs" / "README.zh-CN.md"
MOST_LINES = 180
HEADINGS = {
    "# Greencrawl": "# Greencrawl",
    "## Five minutes to the first crawl": "## 五分钟完成第一次抓取",
    "## Commands": "## 命令",
    "## Your own code": "## 你自己的代码",
    "## The processes": "## 进程",
    "## Content on MySQL": "## 把内容存入 MySQL",
    "## Seeding with curl": "## 用 curl 添加种子",
    "## Politeness": "## 礼貌",
    "## Not supported": "## 不支持的功能",
    "## For developers": "## 开发者",
}
"""The headings of the README, each with the Chinese one, in order."""


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def prose(path: Path) -> str:
    return re.sub(r"^```.*?^```$", "", read(path), flags=re.MULTILINE | re.DOTALL)


def code(path: Path) -> list[str]:
    """Return the lines of all code blocks without comments, which are in the page's language."""
    blocks = re.findall(r"^```\w+\n(.*?)^```$", read(path), re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s{2,}# .*", "", line) for block in blocks for line in block.splitlines()]


def headings(path: Path) -> list[str]:
    """Return each heading with its marks, in order."""
    return re.findall(r"^#+ .*$", prose(path), re.MULTILINE)


def commands(path: Path) -> list[str]:
    """Return the first cells of the table of commands."""
    return re.findall(r"^\| (`.*?`) \| ", read(path), re.MULTILINE)


def options(path: Path) -> list[list[str]]:
    """Return the options and commands that each row of that table names beside its first cell."""
    rows = re.findall(r"^\| `.*?` \| (.*) \|$", read(path), re.MULTILINE)
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def links(path: Path) -> list[str]:
    """Return the targets of its links, without the twin, each once, from the root of the
    checkout."""
    found = re.findall(r"\]\(([^)#]+)", read(path))
    places = [(path.parent / one).resolve().relative_to(ROOT.resolve()) for one in found]
    return [str(one) for one in dict.fromkeys(places) if not one.name.startswith("README.zh")]


def figures(path: Path) -> list[str]:
    return re.findall(r"\b\d[\d,.]*\d\b", prose(path))


@pytest.mark.parametrize("what", [code, commands, options, figures])
def test_the_chinese_readme_says_line_by_line_what_the_english_one_says(what: object) -> None:
    pairs = zip_longest(what(ENGLISH), what(CHINESE))  # type: ignore[operator]
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


def test_the_chinese_readme_has_the_headings_of_the_english_one_in_the_same_order() -> None:
    assert headings(ENGLISH) == list(HEADINGS)
    assert headings(CHINESE) == list(HEADINGS.values())


def test_a_second_worker_has_its_own_name_though_env_names_the_first(tmp_path: Path) -> None:
    (line,) = [line for line in code(ENGLISH) if "honcho -e" in line]
    (tmp_path / ".env").write_text("GREENCRAWL_WORKER_ID=first\nGREENCRAWL_DATA=shared\n")
    (tmp_path / "Procfile").write_text("worker: echo $GREENCRAWL_WORKER_ID in $GREENCRAWL_DATA\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "honcho").symlink_to(ROOT / ".venv" / "bin" / "honcho")
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "second in shared" in done.stdout, done.stderr


def test_the_chinese_readme_leads_to_the_same_pages() -> None:
    english = links(ENGLISH)
    chinese = [one for one in links(CHINESE) if one != "README.md"]
    assert sorted(english) == sorted(chinese)
    assert [one for one in english if not (ROOT / one).exists()] == []


def test_the_readme_names_every_command_and_stays_short() -> None:
    cells = " ".join(re.sub(r"\[.*?\]", "", cell) for cell in commands(ENGLISH))
    named = set(re.findall(r"[a-z]+", cells))
    assert set(greencrawl.list_commands(None)) - named == set()  # type: ignore[arg-type]
    assert len(read(ENGLISH).splitlines()) <= MOST_LINES


def test_the_docs_do_not_advise_to_write_secrets_into_systemd_units() -> None:
    operations = read(ROOT / "docs" / "operations.md")
    assert re.findall(r"[^.`]*`honcho export[^`]*`", operations) == [
        " Do not use `honcho export systemd`"
    ]
    assert "honcho export" not in read(ENGLISH) + read(CHINESE)


def test_the_readme_states_the_measured_capacity_of_a_store_and_of_a_redis() -> None:
    said = " ".join(read(ENGLISH).split())
    results = ROOT / "bench" / "results"
    sqlite = json.loads(read(results / "store.json"))["store x8"][0]
    mysql = json.loads(read(results / "store-mysql.json"))["figures"]["store x4"]["pages_a_second"]
    assert f"SQLite took {sqlite:,.0f} pages a second, a MySQL server {mysql:,.0f}" in said
    scaling = read(ROOT / "docs" / "scaling.md")
    carried = re.findall(r"^\| Redis(?:, all links new)? \| .*? \| ([\d,]+) \|", scaling, re.M)
    new, usual = carried
    assert f"carries {usual} pages a second, {new} where all links are new" in said
    (seen,) = re.findall(r"^\| Redis: all URLs seen \| (.*?) \|", scaling, re.M)
    assert f"a billion URLs seen take {seen} of its memory" in said
