/* See pool.c. */

#include <stddef.h>

typedef void (*mem_free)(void *);
typedef void *(*mem_malloc)(size_t);
typedef void *(*mem_realloc)(void *, size_t);
typedef char *(*mem_strdup)(const char *);
typedef int (*mem_get)(mem_free *, mem_malloc *, mem_realloc *, mem_strdup *);
typedef int (*mem_setup)(mem_free, mem_malloc, mem_realloc, mem_strdup);

/* Make libxml2 allocate from the pool, through its functions xmlMemGet and xmlMemSetup. The
 * calling thread becomes the one that may allocate. False if another thread is that already, or
 * if libxml2 does not use the C library's functions. */
int pool_begin(mem_get get, mem_setup setup);

/* Set whether this thread allocates small pieces from the pool; returns the old value. */
int pool_use(int use);

/* Limit what this thread allocates from the pool next: this much CPU time (0: no limit) and, if
 * `bound`, no more small pieces than the pool has room for. Beyond a limit every allocation
 * fails. */
void pool_grant(double seconds, int bound);

/* Return whether an allocation was refused since the last pool_grant. */
int pool_refused(void);

/* Return how many chunks are not empty. */
unsigned pool_chunks(void);
