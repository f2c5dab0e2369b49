"""The Monitor: pages under ``/monitor/`` of every broker, drawn on the server.

A broker mounts ``mount.py``; ``app.py`` takes a request, ``access.py`` judges it, ``views/`` has
the pages. The room uses ``greencrawl.broker.service`` and what is below it; only
``greencrawl.broker.__main__`` imports it.

How a page is added
-------------------

1. A module in a folder of ``views/`` with a function that takes a ``PageRequest`` and returns the
   data of the page, and a tuple ``VIEWS`` with its ``View``. The data that change while people look
   go into ``part``, the rest into ``frame``: see ``View`` in ``page_request.py``.
   ``views/overview.py`` is a short example, ``views/crawls/crawl.py`` one with
   forms. Name the module in ``views/table.py``.
2. Its templates: ``templates/parts/<name>.html`` is updated every two seconds,
   ``templates/pages/<name>.html`` extends ``layout.html`` and puts ``{{ m.live(part) }}`` where the
   part belongs. Macros for tables, numbers, states and forms are in ``templates/macros.html``.
   Everything is escaped; never mark as safe what was crawled. No attribute ``style``, no ``on…``,
   no ``<script>``: browsers are told to refuse them.
3. Its texts: in ``texts/en.toml`` and ``texts/zh.toml``, under a table with the page's name. The
   name in the menu is ``nav.<name>``. A sentence of another part goes through ``t.reason``, which
   translates it by ``texts/reasons/``.
4. Its actions: an ``Action`` in a tuple ``ACTIONS`` of the module. It calls a function of
   ``broker/service/`` and returns where to go (``Redirect``) with a key of ``said.…``, or a page in
   place (``ActionPage``). Its form is written by ``{% call m.form(path) %}``, which adds the token.
   Only administrators see forms, and only their forms are taken.
5. If two pages ask the store or Redis for the same, both use ``request.shared.get(key, make)``. A
   part as a whole is made once a second for all readers.
6. A list that may be long is written by ``{% for one in rows|yielding %}``, and what is computed
   in a long loop goes through ``yielding`` as well: leases have their turn meanwhile. If the store
   needs long to count something, it is counted in the background (``background/counting.py``).
7. If msgspec finds an error in a form, ``field_errors.py`` says it in words.
8. Errors of the project (``GreencrawlError``) need not be caught: the part says what happened.
   Catch Unavailable where the rest of the page still has something to say.
9. A test in ``tests/monitor/``, with the shared browser of ``conftest.py``.

A number is a link to what it counts. If there is nothing to show, the page says what to do next.
"""

if __name__ != "greencrawl.monitor":
    raise ImportError("`monitor` is called `greencrawl.monitor`: import that")
