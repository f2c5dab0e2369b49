"""A crawl made from arguments, options and a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.inspect import LiteralType

from greencrawl.cli import crawlfile
from greencrawl.cli.options import fields, unwrap
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.net.origins import Origins
from tests.support.checkout import ROOT

EXAMPLES = ROOT / "examples"


def wrong(*arguments: str, **options: object) -> str:
    with pytest.raises(InvalidConfig) as caught:
        crawlfile.build(arguments, options)
    return str(caught.value)


def test_seed_without_scheme_is_taken_as_https() -> None:
    crawl = crawlfile.build(("example.org", "http://Example.com/a#b"), {})
    assert crawl.seeds == ("https://example.org/", "http://example.com/a")


@pytest.mark.parametrize(
    ("typed", "seed"),
    [
        ("localhost:8000", "http://localhost:8000/"),
        ("127.0.0.1:8080/a?b=c:1", "http://127.0.0.1:8080/a?b=c:1"),
        ("[::1]:81", "http://[::1]:81/"),
        ("example.org:8443/x", "https://example.org:8443/x"),
        ("example.org:443", "https://example.org/"),
        ("example.org/a:80", "https://example.org/a:80"),
    ],
)
def test_a_seed_with_a_port_and_no_scheme_is_taken_as_http_unless_the_port_is_for_tls(
    typed: str, seed: str
) -> None:
    assert crawlfile.build((typed,), {}).seeds == (seed,)


@pytest.mark.parametrize(
    "typed",
    [
        "htps://example.org/a",
        "htttp://example.org/a",
        "https//example.org/a",
        "http::example.org/a",
    ],
)
def test_a_misspelt_scheme_is_refused_with_the_scheme_that_was_meant(typed: str) -> None:
    meant = "http" if typed.startswith(("http:", "htttp")) else "https"
    assert f"did you mean {meant}://example.org/a?" in wrong(typed)


def test_a_scheme_other_than_http_is_not_taken_for_a_typing_error() -> None:
    assert "did you mean" not in wrong("ftp://example.org/")
    assert "did you mean" not in wrong("http://")


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("notaurl", "https://notaurl/"),
        ("intranet/a.html?b=1.2", "https://intranet/a.html?b=1.2"),
        ("localhosts", "https://localhosts/"),
        ("中文", "https://中文/"),
    ],
)
def test_a_word_without_a_dot_is_not_taken_for_a_host(typed: str, url: str) -> None:
    assert f"{typed!r} is no URL, and there is no such file; if it is a host, give {url}" in wrong(
        typed
    )
    assert crawlfile.build((url,), {}).seeds[0].startswith("https://")


@pytest.mark.parametrize(
    "typed",
    ["localhost", "LOCALHOST/a", "localhost?a", "intranet:8080", "[::1]", "例子。测试", "a\uff0eb"],
)
def test_a_host_with_a_dot_or_a_port_and_localhost_need_no_scheme(typed: str) -> None:
    assert crawlfile.build((typed,), {}).seeds


@pytest.mark.parametrize("typed", ["", " "])
def test_an_empty_text_is_no_seed(typed: str) -> None:
    assert "seeds: an empty text is no URL" in wrong(typed)


@pytest.mark.parametrize("typed", [".", "..", "...", "./a.html", "..?a", "\u3002"])
def test_a_host_of_dots_alone_is_no_url(typed: str) -> None:
    with pytest.raises(InvalidConfig, match="is no URL, and no name of a host"):
        crawlfile.typed_url(typed, "seeds")


def test_a_text_that_is_too_long_for_the_name_of_a_file_is_refused_as_a_url() -> None:
    assert "is no URL" in wrong("a" * 5000)
    assert "not a URL to crawl" in wrong("a." * 50_000)


@pytest.mark.parametrize("typed", ["./absent/", "/absent/index.html", "../absent", "~/x"])
def test_a_path_is_not_taken_for_a_host(typed: str) -> None:
    assert f"{typed} is the path of a file" in wrong(typed)


@pytest.mark.parametrize(
    ("seed", "name"),
    [
        ("example.org/deep/page", "example.org"),
        ("http://127.0.0.1:8080/", "127.0.0.1-8080"),
        ("http://[::1]:81/", "1-81"),
        ("https://bücher.example/", "xn--bcher-kva.example"),
    ],
)
def test_default_name_comes_from_the_first_seeds_host(seed: str, name: str) -> None:
    assert crawlfile.build((seed, "https://other.example/"), {}).name == name


def test_long_host_names_give_distinct_valid_crawl_names() -> None:
    hosts = ["a." * 60 + end for end in ("example.org", "example.net")]
    names = [crawlfile.default_name(host) for host in hosts]
    assert len(set(names)) == 2
    assert all(len(name) <= 64 for name in names)
    assert [crawlfile.build((host,), {}).name for host in hosts] == names


def test_same_arguments_mean_the_same_crawl() -> None:
    assert crawlfile.build(("example.org",), {}) == crawlfile.build(("example.org",), {})


def test_an_option_overrides_the_crawl_file_and_the_file_the_default(tmp_path: Path) -> None:
    file = tmp_path / "docs.toml"
    file.write_text('seeds = ["example.org"]\ndepth = 3\nmax_pages = 7\nexclude = ["x"]\n')
    crawl = crawlfile.build((str(file), "example.net"), {"depth": 4})
    assert (crawl.depth, crawl.max_pages, crawl.tries) == (4, 7, 5)
    assert crawl.exclude == ("x",)
    assert crawl.seeds == ("https://example.org/", "https://example.net/")
    assert crawl.name == "docs"


def test_the_name_of_a_crawl_comes_from_the_option_then_the_file_then_the_file_name(
    tmp_path: Path,
) -> None:
    file = tmp_path / "My File.toml"
    file.write_text('seeds = ["example.org"]\n')
    assert crawlfile.build((str(file),), {}).name == "my-file"
    file.write_text('seeds = ["example.org"]\nname = "own"\n')
    assert crawlfile.build((str(file),), {}).name == "own"
    assert crawlfile.build((str(file),), {}, "given").name == "given"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seeds = [", "not TOML"),
        ('seeds = "example.org"', "seeds: must be a list"),
        ("seeds = [1]", "seeds: must be a list"),
        (
            'seeds = ["example.org"]\nmaxpages = 3',
            "maxpages: unknown option; did you mean max_page",
        ),
        ('seeds = ["example.org"]\ndepth = "deep"', "depth: Expected `int`, got `str`"),
        ('seeds = ["example.org"]\nname = "No Name"', "name: must be 1 to 64 of a-z"),
        ('seeds = ["example.org"]\nrecrawl = "1d"', "recrawl: must be a table: [recrawl] with"),
        (
            'seeds = ["example.org"]\n[recrawl]\nevry = "1d"',
            "recrawl.evry: unknown option; did you mean recrawl.every?",
        ),
        ('seeds = ["example.org"]\n[recrawl]\nevery = "0s"', "recrawl.every: must be a number of"),
        ('seeds = ["example.org"]\n[recrawl]\nevery = "daily"', "recrawl.every: must be a number"),
        (
            'seeds = ["example.org"]\nmax_pages = 9\n[recrawl]\nevery = "1d"',
            "recrawl: cannot be had together with max_pages",
        ),
        ('seeds = ["example.org"]\nscope = "hosts"', "scope: must be one of host, domain"),
        ('seeds = ["example.org"]\ntraps = false', 'traps: must be "on" or "off", in quotes'),
        ('seeds = ["example.org"]\nhost_pages = -1', "host_pages: "),
        ('seeds = ["example.org"]\nexclude = "x"', 'exclude: must be a list of texts, as in ["'),
        ('seeds = ["example.org"]\nexclude = [1]', "exclude[0]: must be a list of texts"),
        ('seeds = ["example.org"]\ndelay = -1', "see `greencrawl crawl --help`"),
    ],
)
def test_bad_file_is_refused_naming_the_option(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    assert said in wrong(str(file))


def test_all_wrong_options_of_a_file_are_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('seeds = ["example.org"]\ndelay = -1\nmax_page = 3\norder = "any"\n')
    said = wrong(str(file))
    for part in ("delay: ", "max_page: unknown option", "order: must be one of breadth"):
        assert part in said


def test_list_of_urls_is_not_taken_for_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("urls.txt").write_text("https://example.org/\n")
    assert "urls.txt is a file" in wrong("urls.txt")


@pytest.mark.parametrize("typed", [".", "..", "./site", "site", "site/", "site/a", "{here}/site"])
def test_a_folder_as_a_seed_is_named_with_what_to_give_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("site/a").mkdir(parents=True)
    typed = typed.format(here=tmp_path)
    said = f"seeds: {typed} is a folder: give a URL, or a file that ends in .toml and lists URLs"
    assert said in wrong(typed)


def test_a_folder_with_the_name_of_a_site_does_not_hide_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("example.org").mkdir()
    assert crawlfile.build(("example.org",), {}).seeds == ("https://example.org/",)


def test_messages_list_the_values_that_the_records_allow() -> None:
    for name in ("scope", "order", "traps"):
        with pytest.raises(InvalidConfig) as caught:
            crawlfile.build(("example.org",), {name: "?"})
        kind, _ = unwrap(next(field for field in fields() if field.name == name))
        assert isinstance(kind, LiteralType)
        assert all(str(value) in str(caught.value) for value in kind.values)


def test_missing_file_is_named(tmp_path: Path) -> None:
    assert "absent.toml: No such file" in wrong(str(tmp_path / "absent.toml"))


def test_two_files_are_refused() -> None:
    assert "one at a time" in wrong("a.toml", "b.toml")


def test_a_url_that_ends_in_toml_is_not_taken_for_a_file() -> None:
    assert crawlfile.build(("https://example.org/a.toml",), {}).seeds[0].endswith("/a.toml")


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.stem)
def test_shipped_examples_describe_crawls(file: Path) -> None:
    crawl = crawlfile.build((str(file),), {})
    [entry], [source] = crawl.auth, crawl.sources
    assert crawl.name == file.stem == entry.name
    assert Origins(entry.hosts).hold(source.url)


def test_a_crawl_may_start_from_sources_without_seeds(tmp_path: Path) -> None:
    file = tmp_path / "list.toml"
    file.write_text('[[sources]]\nurl = "https://a.example/list"\nitems = "urls"\n')
    crawl = crawlfile.build((str(file),), {})
    assert (crawl.name, crawl.seeds, len(crawl.sources)) == ("list", (), 1)
    file.write_text('[[sources]]\nurl = "https://a.example/list"\nitems = "urls["\n')
    assert "sources[0].items: 'urls[' is no JMESPath" in wrong(str(file))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("[auth]\nkind = 'basic'", "auth: must be a list of tables: write [[auth]]"),
        ("[sources]\nurl = 'a'", "sources: must be a list of tables: write [[sources]]"),
        ("[kernels]\nmatch = 'a'", "kernels: must be a list of tables: write [[kernels]]"),
        ("[[kernels]]\nname = 'a'", "see docs/kernels.md"),
        (
            "[[kernels]]\nmatch = 'http://*'\nkernel = 'x'",
            "kernels[0].kernel: must be http, sitemap",
        ),
        ("[[auth]]\nkind = 'forms'", "auth[0].kind: must be one of basic, digest, bearer, "),
        ("[[auth]]\nname = 'a'", "auth[0]: "),
        ("[[auth]]\nkind = 'basic'\nname = 'My-Site'", "auth[0].name: must be 1 to 32 of a-z"),
        (
            "[[auth]]\nkind = 'basic'\nname = 'a'\nhosts = ['a.example']\npassword = 'geheim'",
            "auth[0].password: is no field of it: secrets belong in the environment",
        ),
        (
            "[[auth]]\nkind = 'basic'\nname = 'a'\nhosts = ['a.example']\nlogin_url = 'x'",
            "auth[0].login_url: is no field of it; see docs/authentication.md",
        ),
    ],
)
def test_a_wrong_table_of_a_crawl_file_is_explained_by_its_own_fields(
    tmp_path: Path, entry: str, said: str
) -> None:
    file = tmp_path / "a.toml"
    file.write_text(f'seeds = ["https://a.example/"]\n{entry}\n')
    told = wrong(str(file))
    assert said in told
    assert "crawl --help" not in told
    assert "geheim" not in told


def test_a_misspelt_name_of_seeds_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('seed = ["https://example.org/"]\nmaxpages = 3\n')
    said = wrong(str(path))
    assert "seed: unknown option; did you mean seeds?" in said
    assert "maxpages: unknown option; did you mean max_pages?" in said


def test_a_crawl_without_seeds_or_sources_is_refused() -> None:
    assert "at least one URL" in wrong()


@pytest.mark.parametrize("seed", ["ftp://example.org/", "mailto:me@example.org", "http://", "a b"])
def test_seed_that_is_no_web_address_is_refused(seed: str) -> None:
    assert "seeds" in wrong(seed)


def test_patterns_and_slots_are_checked_before_anything_starts() -> None:
    said = wrong("example.org", include=["("], slots=2)
    assert "include" in said
    assert "slots" in said
    assert crawlfile.build(("example.org",), {"slots": 2, "delay": 0.0}).slots == 2
