"""Records that processes exchange: on the wire, in Redis, in the store, and with users' hooks.

Times called ``*_ms`` are milliseconds (epoch where they name a moment); fields of the HTTP API
called ``ttl``, ``wait`` and ``delay`` are seconds, as a person would type them. ``A as A`` says
that a name is meant to be taken from here.
"""

from greencrawl.schema.records.auth import (
    KernelRule as KernelRule,
)
from greencrawl.schema.records.crawl import (
    EVERY_SHAPE as EVERY_SHAPE,
    FINISHED as FINISHED,
    LEVELS as LEVELS,
    RELEASED as RELEASED,
    STOPPED as STOPPED,
    STOPPING as STOPPING,
    STOPPING_NOW as STOPPING_NOW,
    Crawl as Crawl,
    CrawlOptions as CrawlOptions,
    CrawlState as CrawlState,
    CreateCrawl as CreateCrawl,
    Order as Order,
    Scope as Scope,
    kept_options as kept_options,
)
from greencrawl.schema.records.fields import (
    CRAWL_NAME as CRAWL_NAME,
    KIND as KIND,
    SESSION_ID as SESSION_ID,
    TOKEN as TOKEN,
    WORKER_ID as WORKER_ID,
    Count as Count,
    CrawlName as CrawlName,
    Pattern as Pattern,
    Seconds as Seconds,
    SessionId as SessionId,
    Token as Token,
    Url as Url,
    WorkerId as WorkerId,
)
from greencrawl.schema.records.host import (
    TRAPS_BYTES as TRAPS_BYTES,
    HostPatch as HostPatch,
    HostReport as HostReport,
    HostState as HostState,
    NodeAway as NodeAway,
    Purge as Purge,
    PutOff as PutOff,
)
from greencrawl.schema.records.lease import (
    INDEX_STEP as INDEX_STEP,
    SUSPECT_DELIVERIES as SUSPECT_DELIVERIES,
    Admission as Admission,
    CloseItem as CloseItem,
    CloseRequest as CloseRequest,
    Dead as Dead,
    Done as Done,
    ExtendItem as ExtendItem,
    ExtendRequest as ExtendRequest,
    FinishItem as FinishItem,
    FinishRequest as FinishRequest,
    HookRefusal as HookRefusal,
    ItemsReply as ItemsReply,
    ItemStatus as ItemStatus,
    LeaseReply as LeaseReply,
    LeaseRequest as LeaseRequest,
    Outcome as Outcome,
    ReconcileReply as ReconcileReply,
    ReconcileRequest as ReconcileRequest,
    Refusal as Refusal,
    ReleaseItem as ReleaseItem,
    ReleaseRequest as ReleaseRequest,
    Retry as Retry,
    Session as Session,
    Task as Task,
    TaskKind as TaskKind,
    pack_redirects as pack_redirects,
    unpack_redirects as unpack_redirects,
)
from greencrawl.schema.records.member import (
    ALL as ALL,
    BEAT_SECONDS as BEAT_SECONDS,
    FAILURES as FAILURES,
    NODE as NODE,
    Facts as Facts,
    InForce as InForce,
    Member as Member,
    MemberKind as MemberKind,
    MemberReply as MemberReply,
    MemberRequest as MemberRequest,
    MemberState as MemberState,
    MemberStatus as MemberStatus,
    NodeName as NodeName,
    NodeOptions as NodeOptions,
    OptionName as OptionName,
    OrderChange as OrderChange,
    Ordered as Ordered,
    Orders as Orders,
)
from greencrawl.schema.records.page import (
    WITHHELD as WITHHELD,
    Directives as Directives,
    Failure as Failure,
    FailureKind as FailureKind,
    Fetched as Fetched,
    Link as Link,
    Page as Page,
)
from greencrawl.schema.records.recrawl import (
    Period as Period,
    Recrawl as Recrawl,
    Round as Round,
    RoundKind as RoundKind,
)
from greencrawl.schema.records.replay import (
    Debt as Debt,
    Duty as Duty,
    FrontierIdentity as FrontierIdentity,
    Mark as Mark,
    NodeRepair as NodeRepair,
    Overflow as Overflow,
    Stamp as Stamp,
)
from greencrawl.schema.records.seed import (
    Seed as Seed,
    SeedBatch as SeedBatch,
    SeedItem as SeedItem,
    SeedReply as SeedReply,
    SeedRequest as SeedRequest,
)
from greencrawl.schema.records.stats import (
    Alert as Alert,
    AlertKind as AlertKind,
    Counted as Counted,
    CrawlStats as CrawlStats,
    Sample as Sample,
    Stats as Stats,
    Totals as Totals,
    UrlState as UrlState,
)
from greencrawl.schema.records.stored import (
    HOOK_FUNCTIONS as HOOK_FUNCTIONS,
    TRAP as TRAP,
    Attempt as Attempt,
    Check as Check,
    Commit as Commit,
    Final as Final,
    FinalState as FinalState,
    HookCount as HookCount,
    HookFailure as HookFailure,
    HookRun as HookRun,
    PageFilter as PageFilter,
    ParkedShape as ParkedShape,
    StoredPage as StoredPage,
    Validators as Validators,
    Version as Version,
)
