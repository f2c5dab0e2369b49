"""Names of keys that Python uses itself; scripts in ``lua/`` make all others from the prefix.

``{p}`` is the hash tag that keeps a partition on one node; keys without one belong to the node.

=====================  ==========================================================================
``gc:owner``           hash: id, layout, frontier, state, epoch, run, tick, clean, rest, lost, owed,
                       listed (``recovery/``); offset, used, gap, jumps, moved, parts
                       (``lua/shared/clock.lua``); vouched (``clock.py``); budget, host_budget,
                       robots_budget, traps_budget, idle_hosts, forced, full (``memory.py``);
                       longest, the longest delay of a crawl so far; crash_hosts, crash_till
                       (``lua/sessions/reconcile.lua``); duty:<name>, the highest epoch of a duty
                       under which anybody wrote (``lua/shared/common.lua``)
``gc:wake``            counter of wake-ups, and the name of their channel
``gc:still``           sorted set crawl → logical ms when nothing of it was leased any more in a
                       partition (``lua/shared/common.lua``): for a broker that got no message
``gc:workers``, ``gc:claimed``  sorted sets worker → logical ms of its last call, or when it was
                       refused since another has its name (``coordination/workers.py``)
``gc:m:<member>``      its incarnation and its report, until the report expires
                       (``coordination/members.py``)
``gc:writable``, ``gc:outage``  a note that the store took a write lately, and since when it takes
                       none (``coordination/outages.py``)
``gc:{p}:c:<crawl>``   a crawl's record, packed: state, delay, slots, order, rev, weight, ver, cal
                       (``lua/crawls/crawl.lua``); quota, low, round (``lua/crawls/quota.lua``);
                       counters adm, wait, leased, later, over, fin, stored, dead, retries, bytes,
                       hosts, requeued, f:<failure kind>; zl, zp, zn, yl, yp, yn and gl,
                       gp, gn: level, pointer and count of the sets of URLs below; during its
                       deletion gone, and the progress with its records of shapes (traps);
                       afterwards, for an hour, only gone
``gc:{p}:crawls``      hash: id of each crawl with a record → the last version that it received
``gc:{p}:due:<crawl>`` sorted set host → logical ms at which it may be opened
``gc:{p}:h:<host>``    a host's record, packed: next, last, till, lvl, busy, sole, ad, rd, od, lat,
                       fail, why, nw (why it rests), rob, and q: for each crawl the waiting tasks,
                       if they are few, or their levels, number and bytes
                       (``lua/shared/common.lua``)
``gc:{p}:w:<crawl>:<host>:<level>``  list of waiting entries of a long queue
``gc:{p}:b``           bytes of tasks in this partition: waiting, leased and later
``gc:{p}:hi``          sorted set host → logical ms when its times are past: hosts that were idle
                       when their record was last written
``gc:{p}:dry``         set of crawl and host: they run low while more waits in the overflow;
                       ``low_hosts.lua`` reads it
``gc:{p}:s:<token>``   hash: a session and its tasks t<number>
``gc:{p}:sd``          sorted set token → logical ms at which it is reaped
``gc:{p}:ws:<worker>`` hash: token → incarnation:sequence, and the worker's watermark #inc, #seq,
                       #gone, the latest incarnations that have left, #free if #inc is one; for a
                       day after its last call
``gc:{p}:later``       sorted set of retries → logical ms
``gc:{p}:z:<crawl>:<start>``  bucket of the seen-set
``gc:{p}:y:<crawl>:<start>``  the same for URLs that wait in the overflow
``gc:{p}:g:<crawl>:<start>``  the same for URLs that were forced and are on their way, and in crawls
                       with a calendar for all that are: each has one task, with its fingerprint
``gc:{p}:gf:<crawl>``  set of those of them that were forced meanwhile: if the task ends without a
                       page, the URL is queued again
``gc:{p}:f:<batch>``   set of fingerprints that a forced batch of seeds has queued, expiring;
                       ``gc:{p}:fl`` list of these batches, ``gc:{p}:fn`` sum of their members
``gc:{p}:r:<origin>``  robots.txt as the workers packed it, expiring; a cache
``gc:{p}:ro``          sorted set origin → its end and its bytes; ``gc:{p}:rb`` their sum
                       (``lua/shared/cache.lua``)
``gc:{p}:t:<crawl>:<host>``  a crawl's statistics of a host's shapes, as the workers packed them,
                       expiring; ``to`` and ``tb`` as ``ro`` and ``rb``; a cache
                       (``lua/shared/traps.lua``)
``gc:{p}:a:<login>``   hash: generation, sealed; the state of a login, expiring
``gc:{p}:ac:<login>``  token of the claim of a login, expiring
``gc:{p}:an:<login>``  hash: claims since the last one with a result, token of the latest; for a
                       day
``gc:{p}:ad:<address>``  the shares of worker processes in an address or a domain, packed;
                       ``gc:{p}:ade`` sorted set address → logical ms when no share counts any
                       more (``lua/addresses/shares.lua``)
``gc:{p}:e:<host>``    list of ids: requests of logins at other hosts, the oldest first
``gc:{p}:eq:<host>:<id>``, ``gc:{p}:er:<host>:<id>``  such a request, and its answer, sealed,
                       expiring
=====================  ==========================================================================

An entry of a *cache* may be refused, or dropped at any time: a reader then gets the data again from
their source. All other keys are needed. These are their bounds:

- the budget of tasks (``b``): waiting, leased and later tasks, the records of hosts with waiting
  tasks or in ``dry``, their lists and their entries in ``due``;
- a share of that budget, and a number a host (``lua/queue/admit.lua``): ``g`` and ``gf``; they have
  no more URLs than tasks wait, are leased or later;
- budgets and numbers of their own, a share of the node's limit each (``memory.py``): ``r`` and
  ``ro``; ``t`` and ``to``; records of idle hosts and ``hi``, except those that may not be asked
  yet; ``f``;
- the limit of the whole node, near which it accepts nothing new: ``z`` and ``y``;
- existing things: a record a crawl, a delay that an operator has set, a login a name (as long as it
  is valid), a session for each place of a worker;
- a number: ``gc:wake``; Redis bounds the messages that a broker has not read yet
  (``client-output-buffer-limit pubsub``);
- time, and the number of members: ``gc:m:<member>``, three quarters of a minute;
- time: ``outage`` a week, ``ws`` a day, the record of a deleted crawl an hour; a minute ``still``
  (of crawls of which something was leased since), ``workers`` and ``claimed``; some seconds ``ad``
  and ``writable``; and requests of logins at other hosts (``e``, ``eq``, ``er``: one a waiting
  session, at most 1000 a host).
"""

from __future__ import annotations

LAYOUT = 2
"""Version of the layout above.

A node with an older layout is emptied and refilled from the store; a frontier with a newer one is
refused.
"""

OWNER = "gc:owner"
WAKE = "gc:wake"
STILL = "gc:still"
WORKERS = "gc:workers"
CLAIMED = "gc:claimed"
WRITABLE = "gc:writable"
OUTAGE = "gc:outage"


def beat(member: str) -> str:
    """Return the key of a member's last report."""
    return f"gc:m:{member}"


def partition(number: int) -> str:
    """Return the prefix of all keys of a partition: KEYS[1] of every script."""
    return f"gc:{{{number}}}"


NIL = "gc:nil"
"""A key that never exists: a script that begins with deleting it runs at the memory limit, too."""


def absent(number: int) -> str:
    """Return KEYS[2] of every script: a key of the partition's slot that never exists."""
    return f"gc:{{{number}}}:nil"


def robots(number: int, origin: str) -> str:
    """Return the key of an origin's robots.txt."""
    return f"gc:{{{number}}}:r:{origin}"


def login(number: int, name: str) -> str:
    """Return the key of a login's state."""
    return f"gc:{{{number}}}:a:{name}"


def errand(number: int, host: str, errand_id: str) -> tuple[str, str]:
    """Return the keys of a request for another host's session, and of its answer."""
    return f"gc:{{{number}}}:eq:{host}:{errand_id}", f"gc:{{{number}}}:er:{host}:{errand_id}"
