"""Failures: URLs that were given up, by kind, and pages on which a hook failed."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlencode

from greencrawl.broker.service.shared import crawl_actions
from greencrawl.broker.service.shared.queries import cursor
from greencrawl.monitor.page_request import Action, Data, Form, PageRequest, Redirect, View
from greencrawl.monitor.views.choosing import chosen
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import Crawl, Final, HookFailure

SHOWN = 50
STEP, COUNTED = 1000, 10_000
"""Rows that one query reads; and rows that are read to count kinds, or to find one kind."""
COUNTED_SECONDS = 5.0
EXAMPLES = 3
"""Pages of each message of a hook."""


def show(request: PageRequest) -> Data:
    """Return kinds, some dead letters, and the errors of hooks."""
    crawl, kind = chosen(request), request.asked("kind")
    data: Data = {"crawl": crawl, "crawls": request.figures.crawls(), "kind": kind}
    if crawl is None:
        return data
    counted, full = request.shared.get(
        ("dead kinds", crawl.id), lambda: _kinds(request, crawl), COUNTED_SECONDS
    )
    rows, after = _some(request, crawl, kind)
    more = {"crawl": crawl.name, **({"kind": kind} if kind else {}), "after": after}
    return {
        **data,
        "kinds": counted.most_common(),
        "full": full,
        "rows": rows,
        "next": f"?{urlencode(more)}" if after else "",
        "first": not request.asked("after"),
        "hooks": [(one, _examples(request, crawl, one.function, one.message))
                  for one in request.service.store.hook_counts(crawl.id)],
        "module": crawl.options.hook,
    }  # fmt: skip


def _kinds(request: PageRequest, crawl: Crawl) -> tuple[Counter[str], bool]:
    """Return the number of dead letters of each kind; and whether more exist than were read."""
    found: Counter[str] = Counter()
    after = ""
    while found.total() < COUNTED:
        rows = request.service.store.dead(crawl.id, STEP, after)
        found.update(final.kind for _, final in rows)
        if len(rows) < STEP:
            return found, False
        after = rows[-1][0]
    return found, True


def _some(request: PageRequest, crawl: Crawl, kind: str) -> tuple[list[Final], str]:
    """Return dead letters, of one kind if that is asked for; and the cursor after them, "" at the
    end.

    With a kind, all final states of that kind are returned.
    """
    after = request.asked("after")
    if not kind:
        with cursor():
            rows = request.service.store.dead(crawl.id, SHOWN, after)
        return [final for _, final in rows], rows[-1][0] if len(rows) == SHOWN else ""
    found: list[Final] = []
    with cursor():
        for looked, (at, final) in enumerate(
            request.service.store.finals(crawl.id, after=after), 1
        ):
            found += [final] if final.kind == kind else []
            if len(found) == SHOWN or looked == COUNTED:
                return found, at
    return found, ""


def _examples(request: PageRequest, crawl: Crawl, function: str, message: str) -> list[HookFailure]:
    found = request.service.store.hook_failures(crawl.id, function, message, limit=EXAMPLES)
    return [failure for _, failure in found]


def requeue(request: PageRequest, form: Form) -> Redirect:
    """Try all dead letters of a crawl again."""
    name = form.text("crawl")
    reply = crawl_actions.requeue(request.service, name)
    return Redirect(f"/monitor/failures?{urlencode({'crawl': name})}", "requeued", reply.added)


def again(request: PageRequest, form: Form) -> Redirect:
    """Fetch pages again on which a hook failed."""
    name = form.text("crawl")
    if not form.text("function"):
        raise InvalidConfig([("function", "is missing")])
    reply = crawl_actions.fetch_failed(
        request.service, name, form.text("function"), form.text("message")
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
