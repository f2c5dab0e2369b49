"""The evidence of a page for its shape and against it, and the order of its links."""

from __future__ import annotations

from msgspec.structs import replace

from greencrawl.schema.log import logger
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import LEVELS, StoredPage, Task
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.traps import parameters
from greencrawl.worker.traps.evidence import (
    HINT_SCORES,
    Evidence,
    Same,
    as_text,
    count_text,
    is_copy,
    is_data,
    newness,
)
from greencrawl.worker.traps.figures import ends_in_number, has_own_figures, has_own_name
from greencrawl.worker.traps.hosts import DONE, FOREIGN, INNER, LINKS, TEXTS, WARM, HostTraps
from greencrawl.worker.traps.known import Known
from greencrawl.worker.traps.novelty import MOST_SHIFT, Found, Novelty, samples_of, text_hash
from greencrawl.worker.traps.queries import plain, view_of
from greencrawl.worker.traps.shapes import Shape
from greencrawl.worker.traps.yields import (
    DEMOTED,
    GOOD,
    KNOWN_AFTER,
    KNOWN_SCORE,
    PARKED,
    Sum,
    key_of,
)

log = logger("worker")

_RANKED = 200
"""Links of a page that are ranked by their shapes, if some are to come last."""
_KINDS = 64
_FRESH, _FEW, _ASKED = 32, 4, 8
"""The number of new links of one page that are read. If there are more links, only every second,
third … is read. For a page with new text the second number is enough. In addition, the third number
of links with a query are read."""
_EVERY = 128
"""How often the links of a settled shape's pages are read, if no shape of the host is poor. Links
that lead to a new query are always read."""
_CLAIMS = 20
"""One URL of a shape is fetched early after this many pages were credited for leading to the shape,
if nothing of it was fetched meanwhile."""
_FADES = 0.8
"""A shape that leads to shapes that lead on counts less by this factor; otherwise shapes that lead
to each other would support each other for ever."""
_TRIES = 4
"""The first pages of a host, in which marks of its software are searched for."""
_SAME_ASKED, _SAME, _DEPTHS = 2, 4, 5
"""Limits for pages with the same text; beyond them the text does not belong to one page. They are:
pages if the last has a query, pages if it has none, depths of their folders."""
_BOTTOM = 7
"""The number of depths beyond which not even a name of its own counts for a page."""
_LONG_TEXT, _BRED = 512, 3
"""A text of at least the first number of bytes is no list; the second number of pages with such a
text, found on each other, are a trap."""
_PATTERNS = 2
"""The first queries of a path, which are judged like unknown shapes."""
_FIRST = 3
"""URLs of an unknown kind that are fetched early."""


class Learner:
    """Learns from the pages of all hosts of a process."""

    def __init__(self, novelty: Novelty, known: Known) -> None:
        self._novelty = novelty
        self._known = known

    def note(
        self, state: HostTraps, task: Task, row: StoredPage, reading: Reading | None = None
    ) -> None:
        """Learn from a page, or a redirect; its links of poor shapes come last afterwards."""
        self._note(state, task, row, reading, None)

    def glance(
        self, state: HostTraps, shape: Shape, task: Task, row: StoredPage, reading: Reading
    ) -> None:
        """Run :meth:`note` for a page of a settled shape.

        If it has new text, it is only counted, except for one page in :data:`_EVERY`.
        """
        links = row.links
        known = state.yields.sums.get(shape.name)
        if (
            known is None
            or known.pages % _EVERY == 0
            or not reading.samples
            or (links and not links[-1].kind.is_page)
            or row.status // 100 == 3
            or is_copy(row, reading)
        ):
            self._note(state, task, row, reading, None)
            return
        met = self._novelty.glance(task.url, reading.samples, links, state.salts, state.shift)
        if met is True:
            state.yields.yielded(known, shape.section)
            state.seen += 1
        elif met:
            self._note(state, task, row, reading, met)  # otherwise it was fetched before

    def _note(
        self,
        state: HostTraps,
        task: Task,
        row: StoredPage,
        reading: Reading | None,
        met: tuple[Found, list[int]] | None,
    ) -> None:
        """Learn from a page; ``met`` says what was new of it, if that was checked already."""
        sums, novelty = state.yields, self._novelty
        shape = state.shape(task.url)
        url = plain(task.url) if state.shaper.sessions else task.url
        if url != task.url and any(
            row.status // 100 == 3 and plain(link.url) == url for link in row.links
        ):
            return  # it leads to itself with another session, which is still to be fetched
        if met is None:
            again = not novelty.fresh([url], state.salt + DONE)
            if url != task.url:
                novelty.fresh([task.url], state.salt + DONE)
            if again:
                return  # it was fetched before: that it is not new says nothing of its shape
            met = self._novel(state, row, reading), self._fresh(state, row)
        found, fresh = met
        seen = Evidence(
            new=newness(found, row), query=shape.params is not None, copy=is_copy(row, reading)
        )
        state.asks = state.asks or seen.query or any("?" in row.links[n].url for n in fresh)
        seen.data = reading is None and is_data(row)
        seen.numbered = ends_in_number(shape.path)
        if shape.params is None and not seen.numbered:
            seen.inner = novelty.met(url, state.salt + INNER)
        known_link = bool(self._software(state, shape, task.url, row))
        poor, first = self._links(state, shape, row, seen, fresh)
        seen.moved = row.status // 100 == 3 and not (seen.own or seen.good or seen.unknown)
        if seen.copy and reading is not None and state.waits(novelty, reading.canonical):
            seen.new = 0.0  # the text belongs to the original
        if not seen.new and reading is not None and shape.params is None and view_of(shape.name):
            whole = url.rstrip("/").rpartition("/")[0]
            seen.copy = seen.copy or any(
                novelty.met(one, state.salt + DONE) for one in (whole, f"{whole}/")
            )
        bottomless = False
        if found.text and not seen.new and reading is not None:
            text = text_hash(reading.samples)
            same = self._compare(state, shape, text, seen)
            bottomless = same.depths.bit_count() > _BOTTOM
            if found.text >= _LONG_TEXT:
                links = [row.links[place].url for place in fresh[:_FRESH]]
                same.bred += self._bred(url, links, state.salt + INNER + (text << 3))
                seen.bred = same.bred >= _BRED
        if state.seen < WARM and seen.new and sums.pages > 2 * WARM:
            known_sum = sums.sum_of(shape.name)
            if known_sum is not None and known_sum.score > 0:
                # it is new to this process, which has not seen much of the host
                seen.new = min(seen.new, 0.3)
        prior = HINT_SCORES.get(shape.hint, 0.0)
        seen.odd = prior > 0
        if known_link:
            prior = max(prior, KNOWN_SCORE)
        one = sums.begin(shape.name, shape.section, prior)
        before = one.score
        if found.text and reading is not None and not known_link:
            seen.figures_only = has_own_figures(
                state, novelty, shape, url, reading.samples, one, seen
            )
        if reading is not None and not known_link:
            alike = seen.wide > 0 or seen.bred or bottomless
            seen.named = has_own_name(state, novelty, shape, row.title, found, seen, alike)
        weight = sums.judge(one, shape.section, seen)
        if shape.params:
            parameters.learn(state, novelty, shape, url, seen)
        if shape.params or "{n}" in shape.path:
            parameters.learn_keys(state, novelty, shape, url, seen)
        state.seen += 1
        if state.asked and seen.new >= 1.0 and not seen.numbered:
            state.asked.pop(shape.path, None)  # it yields: some more may be fetched early
        self._tell(state, one, before, row, weight)
        if seen.new < 1.0 or one.pages <= KNOWN_AFTER:
            state.learnt = True
        if weight > 0 and one.score > 1.0 and reading is not None and len(reading.samples) > 2:
            sums.remember(reading.samples)
        if poor:
            last = LEVELS - 1
            row.links = [
                replace(link, level=last) if link.url in poor else link for link in row.links
            ]
        if first and seen.new < 1.0 and not seen.good:
            self._ask_first(state, task, row, first, shape.path)

    def _novel(self, state: HostTraps, row: StoredPage, reading: Reading | None) -> Found:
        """Return how much of a page its host has not shown yet."""
        if reading is None or not (reading.samples or row.text):
            if row.body and 200 <= row.status < 300:
                text = as_text(row.body) if reading is None else ""
                if text:
                    return self._novelty.look(samples_of(text, row.url), state.salt)
                new = self._novelty.fresh([row.digest.hex()], state.salt + TEXTS)
                return Found(len(row.body) if new else 0, len(row.body), 0)
            return Found(0, 0, 0)
        samples = reading.samples or samples_of(row.text, row.url)
        found = self._novelty.look(samples, state.salt, state.shift)
        if state.shift < samples[0]:
            state.shift = min(samples[0], MOST_SHIFT)
        return found

    def _compare(self, state: HostTraps, shape: Shape, text: int, seen: Evidence) -> Same:
        """Find out where pages with the same text, except numbers, were seen before."""
        same = count_text(state.yields.texts, text, key_of(shape.name), shape.name)
        seen.equal = same.pages > (_SAME_ASKED if seen.query else _SAME)
        seen.deep = seen.equal and same.depths.bit_count() >= _DEPTHS
        seen.wide = same.pages if seen.equal and same.wide else 0
        return same

    def _bred(self, url: str, links: list[str], salt: int) -> bool:
        """Return whether a page was found on another page with the same text (``salt`` is for this
        text), as in traps. From now on its ``links`` count as found on such a page."""
        if links:
            self._novelty.fresh(links, salt)
        return self._novelty.met(url, salt)

    def _fresh(self, state: HostTraps, row: StoredPage) -> list[int]:
        """Return the indexes of a page's links that were not met before."""
        links, salt = row.links, state.salt + LINKS
        if links and not links[-1].kind.is_page:  # requisites come last, and show nothing
            links = [link for link in links if link.kind.is_page]
        if not links:
            return []
        if state.shaper.sessions:
            return self._novelty.fresh([plain(link.url) for link in links], salt)
        return self._novelty.fresh_links(links, salt)

    def _links(
        self, state: HostTraps, shape: Shape, row: StoredPage, seen: Evidence, fresh: list[int]
    ) -> tuple[set[str], dict[str, str]]:
        """Count the new URLs that a page leads to, at the indexes ``fresh``. Returns links that are
        to come last, and those of which nothing is known, with the patterns of their paths."""
        links = row.links
        poor: set[str] = set()
        first: dict[str, str] = {}
        if not fresh:
            return poor, first
        urls = [link.url for link in links]
        if state.shaper.sessions:
            urls = [plain(url) for url in urls]
        origin = row.url[: row.url.index("/", 8) + 1]
        sums, voted, own_key = state.yields, set(), key_of(shape.name)
        inner: list[str] = []
        software = state.software
        most = _FEW if seen.new >= 1.0 else _FRESH
        looked = fresh
        if len(fresh) > most:
            looked = fresh[:: len(fresh) // most + 1]
            asked = [place for place in fresh[:_RANKED] if "?" in urls[place]]
            looked = looked + asked[:: len(asked) // _ASKED + 1]
        for place in looked:
            url = urls[place]
            if not url.startswith(origin):
                host = host_of(url)
                if host != host_of(row.url):
                    seen.good += bool(self._novelty.fresh([host], state.salt + FOREIGN))
                    continue
            other = state.shaper.shape(url)
            if other.name == shape.name:
                one = sums.sum_of(other.name)
                is_poor = one is not None and one.is_poor
                if is_poor:
                    poor.add(links[place].url)
                if other.params is not None or seen.numbered or shape.hint == "choices":
                    seen.own += 1
                    continue
                inner.append(url)  # an index leads to pages of its own shape, too
                if one is not None and one.inner_known:
                    if one.inner >= GOOD:
                        seen.good += 1
                    else:
                        seen.own += 1
                elif is_poor:
                    seen.own += 1
                else:
                    seen.unknown += 1
                if not is_poor:
                    first[links[place].url] = other.path
                continue
            if other.params and self._known.names(other.params, url, software):
                poor.add(links[place].url)
                continue  # such a link says nothing about this page
            if sums.parameters and parameters.key_met(state, self._novelty, other, url):
                poor.add(links[place].url)
                continue
            one = sums.sum_of(other.name)
            if one is None or not one.known:
                against = HINT_SCORES.get(other.hint, 0.0)
                if one is not None:
                    against = one.score
                if against > DEMOTED:
                    seen.poor += 1
                    poor.add(links[place].url)
                elif (
                    shape.params is not None
                    and other.path == shape.path
                    and not (one is None and state.shaper.patterns(other.path) <= _PATTERNS)
                ):
                    seen.own += 1  # another choice of the same list
                    if state.shaper.is_late(other):
                        poor.add(links[place].url)
                else:
                    seen.unknown += 1
                    if other.params is not None and state.shaper.is_late(other):
                        poor.add(links[place].url)
                    else:
                        first[links[place].url] = other.path
            elif one.is_poor:
                seen.poor += 1
                poor.add(links[place].url)
            elif one.is_barren:
                seen.poor += one.grew  # what leads nowhere comes to an end
            elif one.text >= GOOD:
                seen.good += 1
            elif max(one.leads, one.further) >= GOOD:
                one.claims += 1
                if one.claims >= _CLAIMS:  # it may have come to an end since
                    one.claims = 0
                    state.asked.pop(other.path, None)
                    first[links[place].url] = other.path
                seen.leading = max(seen.leading, _FADES * max(one.leads, one.further))
            else:
                seen.unknown += 1
                first[links[place].url] = other.path
            if other.name not in voted:
                voted.add(other.name)
                sums.found_on(other.name, own_key)
        if inner:
            self._novelty.fresh(inner, state.salt + INNER)
        if poor and len(looked) < len(fresh):  # the other links of their shapes, too
            names = {state.shaper.shape(url).name for url in poor}
            others = (links[place].url for place in fresh[:_RANKED])
            poor.update(url for url in others if state.shaper.shape(url).name in names)
        return poor, first

    def _ask_first(
        self, state: HostTraps, task: Task, row: StoredPage, first: dict[str, str], own: str
    ) -> None:
        """Fetch a few URLs of each unknown kind before the rest of them.

        Otherwise all pages of an archive's days would be fetched before the first article, and it
        would not be known whether they are a trap. ``first`` has links, with the patterns of their
        paths; ``own`` is the pattern of the page's path.
        """
        wanted = set()
        asked = state.asked
        for url, path in first.items():
            depth = f"{url[: url.find('/', 8)]} {path.count('/')}"
            if asked.get(path, 0) < _FIRST and (path == own or asked.get(depth, 0) < 3 * _FIRST):
                asked[path] = asked.get(path, 0) + 1
                asked[depth] = asked.get(depth, 0) + 1
                wanted.add(url)
        while len(state.asked) > _KINDS:
            del state.asked[next(iter(state.asked))]
        level = max(task.level - 1, 0)
        if wanted:
            row.links = [
                replace(link, level=level) if link.url in wanted else link for link in row.links
            ]

    def _software(self, state: HostTraps, shape: Shape, url: str, row: StoredPage) -> str:
        """Return what marks a task's URL as a known link; find out which software the host runs."""
        names = self._known.names(shape.params, url, state.software)
        if not state.software and state.tries < _TRIES:
            made = self._known.made_by(row.body) or self._known.laid_out(row.body)
            if not made and names:
                made = self._known.marked(row.body)
            state.tries += 1
            if made:
                state.software = made
                state.changed = True
                name = self._known.software[made].name
                log.info("software_found", host=host_of(url), software=name)
        return names

    def _tell(
        self, state: HostTraps, one: Sum, before: float, row: StoredPage, weight: float
    ) -> None:
        """Log a shape that is parked from now on, or not any more: once, not for each URL."""
        if before < PARKED <= one.score:
            log.info("shape_parked", shape=one.name, pages=one.pages, example=row.url)
            state.changed = True
        elif one.score < PARKED <= before:
            log.info("shape_unparked", shape=one.name, parked=one.parked, example=row.url)
            state.changed = True
