"""All pages, forms and downloads. The menu has the pages in this order."""

from __future__ import annotations

from greencrawl.monitor.page_request import Action, File, View
from greencrawl.monitor.views import overview
from greencrawl.monitor.views.crawls import crawl, edit, export, failures, traps
from greencrawl.monitor.views.stored import pages, url
from greencrawl.monitor.views.system import frontier, hosts, logs, nodes, store

VIEWS: tuple[View, ...] = (
    *overview.VIEWS,
    *crawl.VIEWS,
    *edit.VIEWS,
    *pages.VIEWS,
    *url.VIEWS,
    *failures.VIEWS,
    *traps.VIEWS,
    *nodes.VIEWS[:2],
    *hosts.VIEWS,
    *frontier.VIEWS,
    *store.VIEWS,
    *logs.VIEWS,
    *nodes.VIEWS[2:],
)
ACTIONS: tuple[Action, ...] = (
    *crawl.ACTIONS,
    *edit.ACTIONS,
    *url.ACTIONS,
    *failures.ACTIONS,
    *traps.ACTIONS,
    *hosts.ACTIONS,
    *nodes.ACTIONS,
    *frontier.ACTIONS,
)
FILES: tuple[File, ...] = (*export.FILES, *pages.FILES)
