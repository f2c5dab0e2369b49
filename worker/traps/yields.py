"""The yield of the shapes of one host, and which of them are traps.

A fetch of a shape is evidence for it or against it. For it: text that is new for the host, and
links to new URLs of other shapes that yield. Against it: neither of the two, if the page links to
more of its own kind – a trap makes its own URLs – or is a copy of others. A page with nothing new
that leads nowhere is no evidence: a site has a limited number of them.

The evidence is summed up between limits, so that the last fetches count: beyond :data:`DEMOTED` a
shape's links come last, at :data:`PARKED` its URLs are parked. The more a shape has yielded, the
more evidence this takes.
"""

from __future__ import annotations

from zlib import crc32

from msgspec import Struct

from greencrawl.worker.traps.evidence import Evidence, Same
from greencrawl.worker.traps.novelty import text_of
from greencrawl.worker.traps.queries import query_of

DEMOTED = 2.5
"""Links of a shape with a higher score against it come last."""
PARKED = 6.0
"""A shape with this score against it is parked."""
_MOST = PARKED + 4.0
_NEW, _LEADS, _LEADS_ON = 4.0, 1.5, 1.0
"""Evidence for a shape: new text; links to shapes with new text; links to shapes that lead
there."""
_FIGURES_ONLY = 0.5
"""The share of new text that a page counts for if only its figures are new."""
_CHOICES = 8
"""A page with this many new links to other queries of its own path multiplies."""
_LEAST, _TRUSTED = 4.0, 12.0
"""The lowest score, and the lowest one of a shape with many yields."""
_ODD_LEAST = 0.0
"""The lowest score of a shape with a hint against it: such a shape is never trusted."""
GOOD = 0.25
"""A shape is good if about this share of its last fetches yielded."""
_PACE = 0.25
KNOWN_AFTER = 3
"""After this many fetches it is known whether a shape yields."""

SHAPES, PACKED_SHAPES = 160, 56
"""Shapes of one host that are remembered, and that go to other workers with the host."""
SECTIONS, PACKED_SECTIONS = 128, 32
PARAMETERS = 128
"""Parameters, and values of them, of one host that are remembered."""
TEMPLATES = 200
"""Samples of poor pages that go along to other workers."""
FIRST_PROBE, MORE = 20, 4
"""After this many URLs of a parked shape, one is fetched, the next after so many times more."""

_PROBES, _PAGES_A_PROBE = 2, 100
"""Probes that a host has in any case, and its pages for each further one."""

KNOWN_SCORE = 3.0
"""The score of a link of a known program, if nothing proves that the host runs the program."""
POOR_SECTION = 12.0
"""Unknown shapes in a section with this score against it are parked with it. What the section has
beyond half of this counts against its new shapes."""
_SETTLED = 8
"""Yields after which a shape may be settled."""
_GRANTED = -1.0
"""A shape with a lower score has yielded, lately or often."""
_DROUGHT = 6
"""After this many pages without new text, pages of a shape that ends in a number count against it.
It does not matter whether they lead anywhere."""
_OFTEN, _OFTEN_WEIGHT = 8, 2.5
"""If this many pages of several shapes had one text (a form, an error), another such page counts
more."""
_STEPS = 4
"""Pages on the way to an article that are credited: years lead to months, days, articles."""
_UNJUDGED = 60
"""Pages in a row, of one section, that may lead only to unknown shapes."""
_POOR_FEEDER = 0.7
"""A shape with this score against it leads to more of its kind."""
_FEEDERS, _VOTES = 128, 2


class Sum(Struct, gc=False):
    """Knowledge of one shape. ``score`` is the evidence against it. ``text``, ``leads``,
    ``further`` and ``unknown_leads`` are the shares of its last pages that had new text, or led to
    shapes with new text, to shapes that lead there, and to unknown shapes. ``feeder`` is the hash
    of the shape on whose pages most of its URLs were found, ``votes`` its majority. ``inner`` and
    ``inners`` are about pages whose URL was found on a page of the shape itself: the share with new
    text, and how many were fetched, up to a limit. ``figures`` are the figures of the last page."""

    name: str
    score: float = 0.0
    pages: int = 0
    yields: int = 0
    text: float = 0.5
    leads: float = 0.0
    further: float = 0.0
    unknown_leads: float = 0.0
    feeder: int = 0
    votes: int = 0
    parked: int = 0
    probe: int = FIRST_PROBE
    claims: int = 0
    grew: bool = False
    copied: bool = False
    inner: float = 0.5
    inners: int = 0
    figures: int = 0

    @property
    def known(self) -> bool:
        """Return whether enough of it was fetched to know its yield."""
        return self.pages >= KNOWN_AFTER

    @property
    def is_parked(self) -> bool:
        """Return whether none of its URLs should be fetched, except probes."""
        return self.score >= PARKED

    @property
    def is_poor(self) -> bool:
        """Return whether the shape's links are to come last."""
        return self.score > DEMOTED

    @property
    def is_settled(self) -> bool:
        """Return whether the shape has yielded often, and most of its last pages had new text."""
        return self.text > 0.5 and self.yields >= _SETTLED and self.score < 0

    @property
    def is_barren(self) -> bool:
        """Return whether the shape's pages brought neither text nor links to text, though it is not
        judged."""
        poor = max(self.text, self.leads, self.further, self.unknown_leads) < GOOD
        return poor and self.known and self.score > _GRANTED

    @property
    def inner_known(self) -> bool:
        """Return whether enough was fetched of the URLs found on its own pages."""
        return self.inners >= KNOWN_AFTER

    def due(self) -> bool:
        """Count a URL that is to be parked; return whether it is a probe instead."""
        self.parked += 1
        if self.parked < self.probe:
            return False
        self.probe = self.parked * MORE
        return True


class Yields:
    """The sums of one host."""

    def __init__(self) -> None:
        self.pages = 0
        self.sums: dict[str, Sum] = {}
        self.sections: dict[str, float] = {}
        self.parameters: dict[int, float] = {}
        self.templates: dict[int, None] = {}
        self.texts: dict[int, Same] = {}
        self.packed: dict[int, Sum] = {}
        self.packed_sections: dict[int, float] = {}
        self._feeders: dict[int, tuple[int, int]] = {}
        self.by_key: dict[int, Sum] = {}
        self.unjudged = 0
        """Pages in a row that led only to unknown shapes."""
        self.probes = 0
        """URLs of parked shapes that were fetched as probes, without those that yielded."""
        self.troubled = False
        """True if a shape was poor: before that no link needs to be checked for one."""

    def found_on(self, name: str, feeder: int) -> None:
        """Note that a URL of the shape was found on a page of the shape ``feeder``, a hash. That is
        the vote of one page; the majority counts."""
        found = self.sums.get(name)
        key = key_of(name)
        now = self._feeders.pop(key, (0, 0)) if found is None else (found.feeder, found.votes)
        if now[0] == feeder:
            now = feeder, min(now[1] + 1, 20)
        elif now[1]:
            now = now[0], now[1] - 1
        else:
            now = feeder, 1
        if found is not None:
            found.feeder, found.votes = now
            return
        self._feeders[key] = now
        if len(self._feeders) > _FEEDERS:
            del self._feeders[next(iter(self._feeders))]

    def sum_of(self, name: str) -> Sum | None:
        """Return the sum of a shape; None if there is none."""
        found = self.sums.get(name)
        if found is None and self.packed:
            found = self.packed.pop(key_of(name), None)
            if found is not None:
                found.name = name
                self.sums[name] = self.by_key[key_of(name)] = found
        return found

    def begin(self, name: str, section: str, prior: float) -> Sum:
        """Return the sum of a shape of which something is to be fetched."""
        found = self.sum_of(name)
        if found is None:
            against = max(self.against(section), self.against(query_of(name)))
            prior = max(prior, min(against - POOR_SECTION / 2, PARKED - 1.0))
            key = key_of(name)
            found = self.sums[name] = self.by_key[key] = Sum(name, score=prior)
            found.feeder, found.votes = self._feeders.pop(key, (0, 0))
            self.troubled = self.troubled or found.is_poor
            if len(self.sums) + len(self.packed) > SHAPES:
                self._make_room(name)
        return found

    def judge(self, found: Sum, section: str, seen: Evidence) -> float:
        """Add a page to its sum, and to that of its section; return its weight."""
        weight = self._weigh(found, seen)
        found.pages += 1
        found.claims = 0
        found.text += _PACE * (max(seen.new, _FIGURES_ONLY * seen.figures_only) - found.text)
        found.leads += _PACE * ((seen.good > 0) - found.leads)
        found.further += _PACE * (seen.leading - found.further)
        found.unknown_leads += _PACE * ((seen.unknown > 0) - found.unknown_leads)
        if seen.inner:
            found.inner += _PACE * (seen.new - found.inner)
            found.inners = min(found.inners + 1, KNOWN_AFTER)
        found.grew = seen.own + seen.poor > 0 or found.grew
        found.copied = seen.copy or found.copied
        if weight < 0:
            found.yields += 1
            self._credit(found, seen)
        least = _ODD_LEAST if seen.odd else _least(found)
        found.score = min(max(found.score + weight, least), _MOST)
        self.troubled = self.troubled or found.is_poor
        ending = query_of(found.name)
        if section.endswith("?") or not ending:  # a view says nothing of the folder that it is in
            self._sum_up(section, weight)
        self._sum_up(ending, weight)
        if weight < 0 and found.is_parked:  # a probe that yielded: the next one comes soon
            found.probe = found.parked + 3
            self.probes = max(self.probes - 1, 0)
        elif weight > 0 and found.is_poor and self.in_poor_part(section, ending):
            found.score = max(found.score, PARKED)
        return weight

    def due(self, found: Sum) -> bool:
        """Count a URL that is to be parked; return whether it is a probe instead. Probes are a
        small part of all pages of a host."""
        if self.probes >= _PROBES + self.pages // _PAGES_A_PROBE:
            found.parked += 1
            return False
        is_probe = found.due()
        self.probes += is_probe
        return is_probe

    def in_poor_part(self, section: str, ending: str) -> bool:
        """Return whether nothing yields in a section, or among shapes with one ending."""
        below = section.count("/") > 2 + section.endswith("/")
        return (below and self.against(section) >= POOR_SECTION) or (
            ending != "" and self.against(ending) >= POOR_SECTION
        )

    def yielded(self, found: Sum, section: str) -> None:
        """Add a page of a settled shape that has much new text, and whose links are not read."""
        self.unjudged = 0
        found.pages += 1
        found.yields += 1
        found.text += _PACE * (1.0 - found.text)
        found.score = max(found.score - _NEW, _least(found))
        if self.sections.get(section) != -_TRUSTED:
            self._sum_up(section, -_NEW)

    def _sum_up(self, section: str, weight: float) -> None:
        before = self.against(section)
        after = min(max(before + weight, -_TRUSTED), 16.0)
        if section and after != before:
            self.sections.pop(section, None)
            self.sections[section] = after
            if len(self.sections) > SECTIONS:
                del self.sections[next(iter(self.sections))]

    def fed_by_poor(self, found: Sum) -> bool:
        """Return whether its URLs come from pages of a shape that multiplies and yields nothing.

        URLs from one page, like the members of a list, do not count.
        """
        if found.votes < _VOTES:
            return False
        feeder = self.by_key.get(found.feeder)
        return (
            feeder is not None
            and feeder is not found
            and (feeder.score >= _POOR_FEEDER or (feeder.is_barren and feeder.grew))
        )

    def _credit(self, found: Sum, seen: Evidence) -> None:
        """Credit the shape whose pages led to one that yielded, and the one before it.

        They were fetched before that was known.
        """
        for step in range(_STEPS):
            feeder = self.by_key.get(found.feeder) if found.votes else None
            if feeder is None or feeder is found or (step == 0 and feeder.leads > 0.9):
                return
            if step == 0 and seen.new >= 1.0:
                feeder.leads += _PACE * (1.0 - feeder.leads)
            else:
                feeder.further += _PACE * (1.0 - feeder.further)
            found = feeder

    def _weigh(self, found: Sum, seen: Evidence) -> float:
        if seen.data:
            return 0.3 if seen.new >= 1.0 else 0.7
        if seen.moved:
            return 0.7
        if seen.new >= 1.0 or seen.good:
            self.unjudged = 0
            if (seen.query and seen.own >= _CHOICES) or seen.odd:
                return -_LEADS
            return -_NEW if seen.new >= 1.0 else -_LEADS
        if seen.leading or seen.figures_only or seen.named:
            return -_LEADS_ON
        weight = 1.0 if seen.new == 0 else 0.5
        grows = seen.own + seen.poor > 0
        if seen.equal and (grows or seen.bred or (seen.deep and seen.unknown)):
            young = seen.unknown and seen.own < 2 and not (seen.poor or seen.bred or found.known)
            return (0.7 if young and not seen.deep else 1.5) * weight
        if seen.unknown and not seen.own:
            self.unjudged += 1
            if seen.copy and not seen.query:
                return 0.5 * weight
            odd = seen.query or found.score > DEMOTED or self.unjudged > _UNJUDGED
            return 0.25 * weight if odd else 0.0
        if seen.wide:
            return weight * (_OFTEN_WEIGHT if seen.wide >= _OFTEN else 1.0)
        if seen.query and seen.own >= _CHOICES:
            return 1.5 * weight
        if seen.own > 1 or seen.poor or self.fed_by_poor(found):
            return weight
        if seen.own:
            return 0.7 * weight
        if seen.copy:
            return 0.7 * weight
        if seen.query:
            return (1.5 if seen.equal else 0.75) if seen.new == 0 else 0.1
        never = seen.numbered and found.yields < 2
        return 0.5 * weight if never and (seen.equal or found.pages >= _DROUGHT) else 0.0

    def against(self, section: str) -> float:
        """Return the score against a section as a whole."""
        known = self.sections.get(section)
        if known is None:
            known = self.packed_sections.get(crc32(section.encode()), 0.0)
        return known

    def _make_room(self, name: str) -> None:
        """Forget the shape with the least evidence; a parked one only if there is no other."""
        if self.packed:
            key = next(iter(self.packed))
            del self.packed[key], self.by_key[key]
            return
        others = (one for one in self.sums.values() if one.name != name)
        least = min(others, key=lambda one: (one.is_parked, one.pages, one.score))
        del self.sums[least.name], self.by_key[key_of(least.name)]

    # -- parameters that do not matter

    def parameter(self, key: str) -> float:
        """Return the weight of the evidence that a parameter, or a value of it, makes no
        difference."""
        return self.parameters.get(crc32(key.encode("utf-8", "replace")), 0.0)

    def weigh_parameter(self, key: str, weight: float) -> float:
        """Add ``weight`` to the evidence about a parameter or a value; return the sum."""
        number = crc32(key.encode("utf-8", "replace"))
        score = min(max(self.parameters.pop(number, 0.0) + weight, -12.0), 6.0)
        self.parameters[number] = score
        if len(self.parameters) > PARAMETERS:
            del self.parameters[next(iter(self.parameters))]
        return score

    # -- what goes along

    def remember(self, samples: bytes) -> None:
        """Keep samples of a poor page, so that other workers know similar ones."""
        for tag in text_of(samples)[:40]:
            self.templates.pop(tag, None)
            self.templates[tag] = None
        while len(self.templates) > TEMPLATES:
            del self.templates[next(iter(self.templates))]


def _least(found: Sum) -> float:
    """Return the lowest score of a shape; one page alone proves little: the first page of a
    template has new text."""
    return -min(2.0 * found.yields, _LEAST + found.yields / 2, _TRUSTED)


def key_of(name: str) -> int:
    """Return a shape's name as a number that is the same in any process."""
    return crc32(name.encode("utf-8", "replace"))
