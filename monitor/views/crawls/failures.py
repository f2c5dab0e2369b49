"""Failures: URLs that were given up, by kind, and pages on which a hook failed."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlencode

from greencrawl.broker.service.shared import crawl_actions
from greencrawl.broker.service.shared.queries import cursor
from greencrawl.monitor.look import Action, Data, Form, Look, Redirect, View
from greencrawl.monitor.views.choosing import chosen
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import Crawl, Final, HookFailure

SHOWN = 50
STEP, COUNTED = 1000, 10_000
"""Rows that are read at once; and rows that are read to count kinds, or to find some of one."""
COUNTED_SECONDS = 5.0
EXAMPLES = 3
"""Pages of each message of a hook."""


def show(look: Look) -> Data:
    """Return kinds, some dead letters, and the errors of hooks."""
    crawl, kind = chosen(look), look.asked("kind")
    data: Data = {"crawl": crawl, "crawls": look.figures.crawls(), "kind": kind}
    if crawl is None:
        return data
    counted, full = look.shared.get(
        ("dead kinds", crawl.id), lambda: _kinds(look, crawl), COUNTED_SECONDS
    )
    rows, after = _some(look, crawl, kind)
    more = {"crawl": crawl.name, **({"kind": kind} if kind else {}), "after": after}
    return {
        **data,
        "kinds": counted.most_common(),
        "full": full,
        "rows": rows,
        "next": f"?{urlencode(more)}" if after else "",
        "first": not look.asked("after"),
        "hooks": [(one, _examples(look, crawl, one.function, one.message))
                  for one in look.service.store.hook_counts(crawl.id)],
        "module": crawl.options.hook,
    }  # fmt: skip


def _kinds(look: Look, crawl: Crawl) -> tuple[Counter[str], bool]:
    """Return how many are of each kind; and whether there are more than were read."""
    found: Counter[str] = Counter()
    after = ""
    while found.total() < COUNTED:
        rows = look.service.store.dead(crawl.id, STEP, after)
        found.update(final.kind for _, final in rows)
        if len(rows) < STEP:
            return found, False
        after = rows[-1][0]
    return found, True


def _some(look: Look, crawl: Crawl, kind: str) -> tuple[list[Final], str]:
    """Return dead letters, of one kind if that is asked for; and the cursor after them, "" at the
    end.

    With a kind, all final states of that kind are returned.
    """
    after = look.asked("after")
    if not kind:
        with cursor():
            rows = look.service.store.dead(crawl.id, SHOWN, after)
        return [final for _, final in rows], rows[-1][0] if len(rows) == SHOWN else ""
    found: list[Final] = []
    with cursor():
        for looked, (at, final) in enumerate(look.service.store.finals(crawl.id, after=after), 1):
            found += [final] if final.kind == kind else []
            if len(found) == SHOWN or looked == COUNTED:
                return found, at
    return found, ""


def _examples(look: Look, crawl: Crawl, function: str, message: str) -> list[HookFailure]:
    found = look.service.store.hook_failures(crawl.id, function, message, limit=EXAMPLES)
    return [failure for _, failure in found]


def requeue(look: Look, form: Form) -> Redirect:
    """Try all URLs again that were given up."""
    name = form.text("crawl")
    reply = crawl_actions.requeue(look.service, name)
    return Redirect(f"/monitor/failures?{urlencode({'crawl': name})}", "requeued", reply.added)


def again(look: Look, form: Form) -> Redirect:
    """Fetch pages again on which a hook failed."""
    name = form.text("crawl")
    if not form.text("function"):
        raise InvalidConfig([("function", "is missing")])
    reply = crawl_actions.fetch_failed(
        look.service, name, form.text("function"), form.text("message")
    )
    return Redirect(
        f"/monitor/failures?{urlencode({'crawl': name})}",
        "hook_again",
        reply.added + reply.again,
    )


VIEWS = (View(name="failures", path="/monitor/failures", frame=show, nav=True),)
ACTIONS = (
    Action(path="/monitor/failures/requeue", run=requeue),
    Action(path="/monitor/failures/hook", run=again),
)
