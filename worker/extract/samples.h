/* A few hashes that stand for a page: see samples.c. */

#include <stddef.h>
#include <stdint.h>

#define SAMPLE_SLOTS 256
#define MOST_SAMPLES 128
#define MOST_IMAGES 8
#define LEAST_SHIFT 3
#define SAMPLED 4096 /* samples are taken from at most this many bytes of a page */
#define SAMPLED_END 1024 /* this many of these are the last of the text that is looked at: 2 * SAMPLED bytes */
#define SAMPLES_HEAD 3 /* bytes before the tags of a page */
#define MOST_FIGURES 16
#define MOST_OWN 16

/* The figures of one block. `label` is a hash of the block's other text; its last four bits are
 * the number of figures, at most 15. */
struct figures {
    uint32_t label, value;
};

struct samples {
    uint32_t slots[SAMPLE_SLOTS], images[MOST_IMAGES];
    struct figures figures[MOST_FIGURES];
    uint64_t own[MOST_OWN], last; /* the numbers of the page's URL, and the last number of the text */
    unsigned count, image_count, shift, figures_count, own_count;
};

void samples_begin(void);
/* Take the path of `url` out of a text, and the words of `url` if the text is short. Return the
 * new length. This leaves gaps that no piece crosses. */
size_t without_echo(char *text, size_t length, const char *url);
/* Note the numbers of a URL, which are no figures of its page. */
void samples_own(struct samples *samples, const char *url);
/* Take samples and figures of `text`, in which line feeds separate blocks. It writes one byte
 * behind the text. */
void samples_take(struct samples *samples, char *text, size_t length);
void samples_image(struct samples *samples, const char *source);
/* Add `count` tags to a table with `slots` places, a power of 2, and return how many were not in
 * it. Only tags of at least `level` count; `looked` is their number. `beside` is the number of
 * new short blocks, which are kept beside the samples. */
unsigned tags_new(const uint32_t *tags, size_t count, uint64_t salt, uint32_t *table, size_t slots,
                  unsigned level, unsigned *looked, unsigned *beside);
uint64_t string_hash(const char *text, size_t length, uint64_t salt);
/* Prefetch the place of a tag in a table. */
void tag_expected(uint64_t tag, const uint32_t *table, size_t slots);
/* Return whether a tag is in the table; with `keep` it is there afterwards. */
int tag_known(uint64_t tag, uint32_t *table, size_t slots, int keep);
