"""The permits of a command for the broker and the workers that it starts; see
``schema.net.permits``.

Without tokens every account of the machine may create crawls at such a broker. So only modules and
secrets that the person named on the command line are permitted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from greencrawl.schema.net.permits import Permits, permitted_hosts, variable
from greencrawl.schema.net.providers import login_urls
from greencrawl.schema.records import CrawlOptions
from greencrawl.schema.records.auth import Own
from greencrawl.schema.settings import Settings
from greencrawl.schema.text.kernel_rules import own_kernels
from greencrawl.worker.auth.state.secrets import tables_of


def of_file(settings: Settings) -> dict[str, str]:
    """Return the ``hosts`` in the file of credentials as variables: a broker reads no such file.

    A variable that is set in the environment is left out. Raises InvalidConfig when the file cannot
    be read.
    """
    file = settings.credentials_file
    tables = tables_of(file) if file.exists() else {}
    found = {variable(n): t["hosts"] for n, t in tables.items() if "hosts" in t and "://" not in n}
    return {name: hosts for name, hosts in found.items() if not os.environ.get(name)}


def of_crawls(settings: Settings, crawls: Iterable[CrawlOptions]) -> dict[str, str]:
    """Return variables that permit the modules and the secrets which these crawls name.

    If the operator has set the hosts of a secret, they stay. If the broker has tokens,
    everything stays as the operator has set it.
    """
    if not Permits.of(settings).confined:
        return {}
    permitted = of_file(settings)
    modules, hosts = dict.fromkeys(settings.hooks), dict[str, dict[str, None]]()
    for options in crawls:
        if options.hook:
            modules[options.hook] = None
        modules.update(dict.fromkeys(own_kernels(options)))
        for entry in options.auth:
            if isinstance(entry, Own):
                modules[entry.login] = None
            asked = permitted_hosts(entry, login_urls(entry))
            hosts.setdefault(variable(entry.name), {}).update(dict.fromkeys(asked))
    for name, asked_hosts in hosts.items():
        if name not in permitted and not os.environ.get(name):
            permitted[name] = ",".join(asked_hosts)
    if modules:
        permitted["GREENCRAWL_HOOKS"] = ",".join(modules)
    return permitted
