"""A new crawl, and a crawl's options: changes are shown before they are saved."""

from __future__ import annotations

import msgspec

from greencrawl.broker.service import changing, seeding
from greencrawl.broker.service.shared.crawl_actions import error_parts
from greencrawl.monitor import options as fields
from greencrawl.monitor.field_errors import sentence
from greencrawl.monitor.page_request import (
    Action,
    ActionPage,
    Data,
    Form,
    PageRequest,
    Redirect,
    View,
)
from greencrawl.monitor.views.crawls.crawl import place
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.records import CrawlOptions, CreateCrawl
from greencrawl.schema.records.fields import CrawlName

INVALID = 422
BY = "monitor"
"""The author of a change in the log of orders: the Monitor knows roles, but no names."""


def new(request: PageRequest) -> Data:
    """Return an empty form."""
    return _form(fields.sent(CrawlOptions()), "")


def edit(request: PageRequest) -> Data:
    """Return the form of an existing crawl."""
    crawl = request.service.store.crawl(request.path["crawl"])
    return _form(fields.sent(crawl.options), crawl.name, crawl.revision)


def create(request: PageRequest, form: Form) -> Redirect | ActionPage:
    """Create a crawl; show the form again if something is wrong."""
    name, (options, wrong) = form.text("name"), fields.read(form, request.words)
    try:
        msgspec.convert(name, CrawlName)
    except msgspec.ValidationError as error:
        wrong["name"] = sentence(request.words, error)
    if not wrong and name in {crawl.name for crawl in request.service.store.crawls()}:
        wrong["name"] = request.words("edit.taken", name=name)
    if options is None or wrong:
        return _again("new", form, name, wrong)
    values = {one: getattr(options, one) for one in CrawlOptions.__struct_fields__}
    try:
        seeding.create(request.service, CreateCrawl(name=name, **values))
    except GreencrawlError as error:
        return _again("new", form, name, _problems(error))
    return Redirect(place(name), "created")


def check(request: PageRequest, form: Form) -> Redirect | ActionPage:
    """Show the changes, or with ``step`` save them, or go back to the form."""
    name, revision = request.path["crawl"], form.number("revision") or 0
    options, wrong = fields.read(form, request.words)
    if options is None or form.text("step") == "again":
        return _again("edit", form, name, wrong, revision)
    before = request.service.store.crawl(name)
    if form.text("step") != "save":
        differences = list(fields.changed(before.options, options))
        data: Data = {"name": name, "revision": revision, "differences": differences}
        return ActionPage("difference", {**data, "sent": fields.sent(options)})
    try:
        given = msgspec.to_builtins(options)
        changing.change(request.service, name, given, revision=revision, by=BY)
    except GreencrawlError as error:
        return _again("edit", form, name, _problems(error), revision)
    return Redirect(place(name), "saved")


def _problems(error: GreencrawlError) -> dict[str, str]:
    """Return what is wrong by field; "" for an error of no field. Other errors are raised again."""
    known = error_parts(error)
    if known is None or known[0] >= 500:
        raise error
    _, detail, problems = known
    named = {field.name for field in fields.fields()} | {"name"}
    found = {where.partition("[")[0].partition(".")[0]: what for where, what in problems}
    return {where if where in named else "": what for where, what in found.items()} or {"": detail}


def _again(
    template: str, form: Form, name: str, wrong: dict[str, str], revision: int = 0
) -> ActionPage:
    """Show the form as it was sent, with what is wrong."""
    sent = {f"o.{field.name}": form.text(f"o.{field.name}") for field in fields.fields()}
    status = INVALID if wrong else 200
    return ActionPage(template, {**_form(sent, name, revision), "wrong": wrong}, status)


def _form(sent: dict[str, str], name: str, revision: int = 0) -> Data:
    seeds = next(field for field in fields.fields() if field.name == "seeds")
    return {
        "name": name, "revision": revision, "sent": sent, "wrong": {}, "seeds": seeds,
        "groups": fields.groups(),
    }  # fmt: skip


VIEWS = (
    View(name="new", path="/monitor/new", frame=new, admin=True),
    View(name="edit", path="/monitor/crawls/{crawl}/edit", frame=edit, admin=True),
)
ACTIONS = (
    Action(path="/monitor/new", run=create),
    Action(path="/monitor/crawls/{crawl}/edit", run=check),
)
