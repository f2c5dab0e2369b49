/* The memory of pages' trees: one after the other from chunks, each of which is as new again when
 * all that was taken of it is back.
 *
 * A tree is thousands of small pieces that are made in one go, walked and freed in one go. So they
 * lie side by side, in the order in which they are walked, and page after page in the same few
 * hundred KB, which stay in the processor's cache. The C library's heap hands out what others have
 * left, from all over: with it a page of documentation takes a tenth more CPU.
 *
 * One thread takes from the pool, and only while it says so; any may free. Whatever was taken
 * elsewhere, before or meanwhile, is the C library's, and so is what is large.
 *
 * All that a parse does takes memory, so this is also where a parse is ended that takes too much
 * CPU, or a larger tree than the pool has room for where that is not allowed: it is refused a
 * piece. libxml2 then gives up, as it does where memory is short. */

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
/* Beyond these an empty chunk's memory is given back: a huge page's. */
#define KEPT 16
/* Between two looks at the clock: so much of a chunk, or so many pieces of the C library's. Within
 * these a hostile page spends some 50 ms. A small piece that fits costs nothing more for it. */
#define STEP ((size_t)16 * 1024)
#define LARGE 64
/* Less wall-clock time than this is not worth asking for the CPU's, which is a system call. */
#define UNASKED 5000000

static char *pool;
static char *next, *end; /* what is left of the current chunk until the next look */
static char *limit;      /* the chunk's end */
static unsigned current;
static struct {
    uint32_t held;   /* taken by the thread that may, less what it freed */
    uint32_t others; /* freed by other threads */
} chunks[CHUNKS];
#ifdef __GLIBC__ /* a look and not a call; musl would not load the module */
__attribute__((tls_model("initial-exec")))
#endif
static __thread int owner, in_use;
static unsigned large; /* pieces until the next look */
static int64_t granted; /* of CPU, in ns; 0: without end */
static int64_t began;   /* by the clock that is asked: 0 until it is */
static clockid_t asked;
static int bounded; /* whether no more may be taken than the pool has room for */
static int refused;

static int64_t nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* From now on every piece: the attributes of one tag go on one by one. */
static void refuse(void) {
    refused = 1, large = 1;
    end = next;
}

/* Whether what takes from the pool has had its time. It is counted from the first look; first by
 * the cheap clock, and by the CPU's once that shows more than a usual page takes. */
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

/* Have some more of the current chunk taken without a look. */
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

/* Go on in another chunk, the first that is empty; false if none is. */
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

/* A piece that is not small, or for which there is no room before the next look. */
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

/* Where in the pool it is; at least the pool's size for what is the C library's. */
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
    /* Back to a chunk that keeps its memory, or page after page would have to be given it anew. */
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
    size_t most = CHUNK - place % CHUNK; /* how large it was is not known, but that it ended here */
    if (most > SMALL)
        most = SMALL;
    memmove(other, taken, size < most ? size : most); /* beyond its end may be the other */
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
    pool = reserved; /* before the first piece comes back */
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
