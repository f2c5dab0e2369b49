/* The memory of pages' trees: one after the other from chunks, each of which is as new again when
 * all that was taken of it is back.
 *
 * A tree is thousands of small pieces that are made in one go, walked and freed in one go. So they
 * lie side by side, in the order in which they are walked, and page after page in the same few
 * hundred KB, which stay in the processor's cache. The C library's heap hands out what others have
 * left, from all over: with it a page of documentation takes a tenth more CPU.
 *
 * One thread takes from the pool, and only while it says so; any may free. Whatever was taken
 * elsewhere, before or meanwhile, is the C library's, and so is what is large. */

#define _DEFAULT_SOURCE
#include "pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SMALL 256
#define CHUNK ((size_t)256 * 1024)
#define CHUNKS 128
/* Beyond these an empty chunk's memory is given back: a huge page's. */
#define KEPT 16

static char *pool;
static char *next, *end; /* what is left of the current chunk */
static unsigned current;
static struct {
    uint32_t held;   /* taken by the thread that may, less what it freed */
    uint32_t others; /* freed by other threads */
} chunks[CHUNKS];
#ifdef __GLIBC__ /* a look and not a call; musl would not load the module */
__attribute__((tls_model("initial-exec")))
#endif
static __thread int owner, in_use;

static int is_empty(unsigned chunk) {
    return chunks[chunk].held == __atomic_load_n(&chunks[chunk].others, __ATOMIC_ACQUIRE);
}

static void enter(unsigned chunk) {
    chunks[chunk].held = chunks[chunk].others = 0;
    current = chunk;
    next = pool + chunk * CHUNK;
    end = next + CHUNK;
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

static void *take(size_t size) {
    if (!in_use || size > SMALL || size == 0)
        return malloc(size);
    size = (size + 15) & ~(size_t)15;
    if ((size_t)(end - next) < size && !go_on())
        return malloc(size);
    void *taken = next;
    next += size;
    chunks[current].held++;
    return taken;
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

unsigned pool_chunks(void) {
    unsigned count = 0;
    for (unsigned chunk = 0; chunk < CHUNKS; chunk++)
        count += !is_empty(chunk);
    return count;
}
