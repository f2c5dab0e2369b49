"""The public suffix list as tldextract reads it: a domain's partition must not change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tldextract
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.net import suffixes

_REFERENCE = tldextract.TLDExtract(
    cache_dir=None,
    suffix_list_urls=(),
    fallback_to_snapshot=True,
    include_psl_private_domains=True,
)
_RULES = sorted(suffixes._rules())
_LABELS = ["a", "www", "com", "co", "uk", "ck", "io", "github", "xn--p1ai", "xn--a", "xn--", ""]


def _ours(name: str) -> tuple[str, str, bool]:
    return suffixes.under_registry(name), suffixes.under_suffix(name), suffixes.is_suffix(name)


def _theirs(name: str) -> tuple[str, str, bool]:
    found = _REFERENCE.extract_str(name)
    return (
        found.top_domain_under_registry_suffix,
        found.top_domain_under_public_suffix,
        bool(found.suffix) and not found.domain,
    )


def _names() -> Iterator[str]:
    for rule in _RULES:
        base = rule.replace("*", "any").removeprefix("!")
        yield from (base, f"{base}.", f".{base}", f"www.{base}", f"b.a.{base}", f"a..{base}")
        yield f"a.{base}.com"
        if "." in base:  # the rule above it, and a neighbour of it
            yield base.partition(".")[2]
            yield f"a.other.{base.partition('.')[2]}"


def test_every_suffix_rule_is_read_as_tldextract_reads_it() -> None:
    names = list(_names())
    assert len(names) > 50_000
    assert [name for name in names if _ours(name) != _theirs(name)] == []


@given(st.lists(st.sampled_from([*_LABELS, *_RULES[::50]]), min_size=1, max_size=5))
def test_host_names_of_any_labels_are_read_as_tldextract_reads_them(labels: list[str]) -> None:
    name = ".".join(labels).replace("*", "x").replace("!", "")
    assert _ours(name) == _theirs(name)


@pytest.mark.parametrize("name", ["127.0.0.1", "[::1]", "[::ffff:102:304]", "localhost", "", "."])
def test_addresses_and_single_labels_have_no_public_suffix(name: str) -> None:
    assert _ours(name) == _theirs(name) == ("", "", False)


def test_suffixes_in_unicode_and_in_capital_letters_are_recognised() -> None:
    assert suffixes.is_suffix("公司.cn")
    assert suffixes.is_suffix("CO.UK")
    assert not suffixes.is_suffix("例え.中国")
