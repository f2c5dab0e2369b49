/* See pool.c. */

#include <stddef.h>

typedef void (*mem_free)(void *);
typedef void *(*mem_malloc)(size_t);
typedef void *(*mem_realloc)(void *, size_t);
typedef char *(*mem_strdup)(const char *);
typedef int (*mem_get)(mem_free *, mem_malloc *, mem_realloc *, mem_strdup *);
typedef int (*mem_setup)(mem_free, mem_malloc, mem_realloc, mem_strdup);

/* Have libxml2, by its functions xmlMemGet and xmlMemSetup, take memory from here; the calling
 * thread is the one that may. False if another thread has it, or if libxml2's memory is somebody
 * else's already. */
int pool_begin(mem_get get, mem_setup setup);

/* Whether this thread takes small pieces from the pool; returns what it did before. */
int pool_use(int use);

/* From now on what this thread does while it takes from the pool may use so much CPU, 0: any, and
 * where it is bounded no more small pieces than the pool has room for; afterwards it is refused
 * memory, until it gives up. */
void pool_grant(double seconds, int bound);

/* Whether it was, since then. */
int pool_refused(void);

/* How many chunks hold something. */
unsigned pool_chunks(void);
