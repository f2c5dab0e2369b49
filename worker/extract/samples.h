/* A few hashes that stand for a page: see samples.c. */

#include <stddef.h>
#include <stdint.h>

#define SAMPLE_SLOTS 256
#define MOST_SAMPLES 128
#define MOST_IMAGES 8
#define LEAST_SHIFT 3
#define SAMPLED 4096 /* bytes of a page, at most, of which samples are taken */
#define SAMPLED_END 1024 /* of them from the end of what is looked at, twice as much */
#define SAMPLES_HEAD 3 /* bytes before the tags of a page */
#define MOST_FIGURES 16
#define MOST_OWN 16

/* The numbers of one block. `label` is a hash of the rest of the block, but for its last four bits:
 * how many numbers, 15 at most. */
struct figures {
    uint32_t label, value;
};

struct samples {
    uint32_t slots[SAMPLE_SLOTS], images[MOST_IMAGES];
    struct figures figures[MOST_FIGURES];
    uint64_t own[MOST_OWN], last; /* numbers of the page's URL, and the last one that was met */
    unsigned count, image_count, shift, figures_count, own_count;
};

void samples_begin(void);
/* Take the path of `url` out of a text, and its words if the text is short; its length then. Gaps
 * are left, which pieces do not cross. */
size_t without_echo(char *text, size_t length, const char *url);
/* Note the numbers of a URL, which are no figures of its page. */
void samples_own(struct samples *samples, const char *url);
/* Take samples and figures of `text`, in which line feeds stand between blocks; a byte behind it is written. */
void samples_take(struct samples *samples, char *text, size_t length);
void samples_image(struct samples *samples, const char *source);
/* How many of `count` tags the table has not got; it has them afterwards. `slots`: a power of 2.
 * Those of a level below `level` do not count; `looked` is how many do. `beside` is how many
 * further short blocks it has not got. */
unsigned tags_new(const uint32_t *tags, size_t count, uint64_t seed, uint32_t *table, size_t slots,
                  unsigned level, unsigned *looked, unsigned *beside);
uint64_t string_hash(const char *text, size_t length, uint64_t seed);
/* Where a tag would stand is brought near, while others are looked at. */
void tag_expected(uint64_t tag, const uint32_t *table, size_t slots);
/* Whether the table has got a tag; with `keep` it has it afterwards. */
int tag_known(uint64_t tag, uint32_t *table, size_t slots, int keep);
