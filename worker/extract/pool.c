/* The memory for trees of pages. Pieces are taken from chunks, one after the other. A chunk is
 * reused from its start when all of its pieces were freed.
 *
 * A tree is thousands of small pieces. They are allocated in one go, walked and freed. In the pool
 * they are side by side in the order of the walk. Page after page uses the same few hundred KB,
 * which stay in the processor's cache. The C library's heap would scatter them over the gaps that
 * others left: then a page of documentation takes a tenth more CPU.
 *
 * Only one thread allocates from the pool, and only while it asks for that; any thread may free.
 * All other pieces come from the C library: large ones, and those allocated before or elsewhere.
 *
 * Everything that a parse does needs memory. So this is also the place to end a parse that takes
 * too much CPU, or whose tree needs more than the pool has, if that is not allowed. Its next
 * allocation fails, and libxml2 gives up as it does when memory is short. */

#define _DEFAULT_SOURCE
#include "pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SMALL 256
#define CHUNK ((size_t)256 * 1024)
#define CHUNKS 96
/* Chunks from this number on return their memory to the system when they are empty. The others
 * keep it; together they are as large as two huge pages. */
#define KEPT 16
/* The clock is checked after this many bytes of a chunk, or this many pieces of the C library's.
 * A hostile page spends some 50 ms between two checks. A small piece that fits costs nothing
 * more. */
#define STEP ((size_t)16 * 1024)
#define LARGE 64
/* The CPU clock needs a system call, so it is not asked before this much wall-clock time, in ns. */
#define UNASKED 5000000

static char *pool;
static char *next, *end; /* what may be taken from the current chunk before the next check */
static char *limit;      /* the end of the chunk */
static unsigned current;
static struct {
    uint32_t held;   /* pieces taken by the thread that allocates, less those that it freed */
    uint32_t others; /* pieces freed by other threads */
} chunks[CHUNKS];
#ifdef __GLIBC__ /* reading it needs no function call; musl could not load the module with it */
__attribute__((tls_model("initial-exec")))
#endif
static __thread int owner, in_use;
static unsigned large; /* pieces until the next check */
static int64_t granted; /* CPU time in ns; 0: no limit */
static int64_t began;   /* a time of the clock `asked`; 0 until the first check */
static clockid_t asked;
static int bounded; /* whether the parse may take no more than the pool has */
static int refused;

static int64_t nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* From now on check every piece: a tag's attributes are allocated one by one. */
static void refuse(void) {
    refused = 1, large = 1;
    end = next;
}

/* Return whether the parse has used up its time, which counts from the first check. It asks the
 * cheap clock first, and the CPU clock after more time than a usual page takes. */
static int overdue(void) {
    large = refused ? 1 : LARGE;
    if (granted == 0 || refused)
        return refused;
    int64_t now = nanoseconds(asked);
    if (began == 0)
        began = now;
    if (asked == CLOCK_MONOTONIC && now - began > UNASKED) {
        asked = CLOCK_THREAD_CPUTIME_ID;
        began = nanoseconds(asked) - UNASKED;
    } else if (asked != CLOCK_MONOTONIC && now - began > granted) {
        refuse();
    }
    return refused;
}

static int is_empty(unsigned chunk) {
    return chunks[chunk].held == __atomic_load_n(&chunks[chunk].others, __ATOMIC_ACQUIRE);
}

/* Allow the next bytes of the current chunk before another check. */
static void step(void) {
    size_t left = (size_t)(limit - next);
    end = next + (refused ? 0 : left < STEP ? left : STEP);
}

static void enter(unsigned chunk) {
    chunks[chunk].held = chunks[chunk].others = 0;
    current = chunk;
    next = pool + chunk * CHUNK;
    limit = next + CHUNK;
    step();
}

/* Continue in the first other chunk that is empty; false if there is none. */
static int go_on(void) {
    for (unsigned chunk = 0; chunk < CHUNKS; chunk++)
        if (chunk != current && is_empty(chunk)) {
            enter(chunk);
            return 1;
        }
    return 0;
}

static void *take_small(size_t size) {
    void *taken = next;
    next += (size + 15) & ~(size_t)15;
    chunks[current].held++;
    return taken;
}

/* Allocate a piece that is not small, or that does not fit before the next check. */
static void *take_otherwise(size_t size) {
    if (size > SMALL || size == 0)
        return --large == 0 && overdue() ? NULL : malloc(size);
    if (overdue())
        return NULL;
    if ((size_t)(limit - next) >= ((size + 15) & ~(size_t)15)) {
        step();
    } else if (!go_on()) {
        if (!bounded)
            return malloc(size);
        refuse();
        return NULL;
    }
    return take_small(size);
}

static void *take(size_t size) {
    if (!in_use)
        return malloc(size);
    if (size - 1 >= SMALL || (size_t)(end - next) < ((size + 15) & ~(size_t)15))
        return take_otherwise(size);
    return take_small(size);
}

/* Return the offset of a piece in the pool; a piece of the C library's has at least the pool's
 * size. */
static size_t place_of(const void *taken) {
    return (uintptr_t)taken - (uintptr_t)pool;
}

static void give_back(void *taken) {
    size_t place = place_of(taken);
    if (place >= CHUNKS * CHUNK) {
        free(taken);
        return;
    }
    unsigned chunk = (unsigned)(place / CHUNK);
    if (!owner) {
        __atomic_fetch_add(&chunks[chunk].others, 1, __ATOMIC_RELEASE);
        return;
    }
    chunks[chunk].held--;
    if (!is_empty(chunk))
        return;
    if (chunk >= KEPT)
        madvise(pool + chunk * CHUNK, CHUNK, MADV_DONTNEED);
    /* Use a chunk that keeps its memory again, or the system would have to supply it for each
     * page. */
    if (chunk == current && (chunk < KEPT || !go_on()))
        enter(chunk);
}

static void *resize(void *taken, size_t size) {
    size_t place = place_of(taken);
    if (taken == NULL)
        return take(size);
    if (place >= CHUNKS * CHUNK)
        return realloc(taken, size);
    void *other = take(size);
    if (other == NULL)
        return NULL;
    size_t most = CHUNK - place % CHUNK; /* its size is unknown, but it ended in this chunk */
    if (most > SMALL)
        most = SMALL;
    memmove(other, taken, size < most ? size : most); /* the new piece may follow it directly */
    give_back(taken);
    return other;
}

static char *duplicate(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = take(size);
    return copy == NULL ? NULL : memcpy(copy, text, size);
}

int pool_begin(mem_get get, mem_setup setup) {
    if (pool != NULL)
        return owner;
    mem_free given;
    mem_malloc taken;
    mem_realloc resized;
    mem_strdup duplicated;
    if (get(&given, &taken, &resized, &duplicated) != 0 || given != free || taken != malloc)
        return 0;
    char *reserved = mmap(NULL, CHUNKS * CHUNK, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return 0;
    pool = reserved; /* before the first piece is freed */
    enter(0);
    owner = setup(give_back, take, resize, duplicate) == 0;
    return owner;
}

int pool_use(int use) {
    int before = in_use;
    in_use = use && owner;
    return before;
}

void pool_grant(double seconds, int bound) {
    if (!owner)
        return;
    bounded = bound;
    granted = (int64_t)(seconds * 1e9);
    asked = CLOCK_MONOTONIC;
    began = refused = 0;
    large = LARGE;
    step();
}

int pool_refused(void) {
    return owner && refused;
}

unsigned pool_chunks(void) {
    unsigned count = 0;
    for (unsigned chunk = 0; chunk < CHUNKS; chunk++)
        count += !is_empty(chunk);
    return count;
}
