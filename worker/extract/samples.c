/* Hashes of pieces of a page's text, and the tables that remember them; see
 * greencrawl/worker/traps/novelty.py.
 *
 * A piece is a window of 21 bytes within a block of the page, or a whole block that is shorter.
 * Only windows with a small hash are taken. So two pages that share a passage share its samples, at
 * any place and in any script. Pieces end where blocks end: a list in another order has the same
 * pieces.
 *
 * All whole numbers count as the same, because dates and counters say nothing new. Decimals differ,
 * because tables of measurements consist of them. The text of links is left out, because it
 * describes other pages. The path of the page's own URL is left out too, and on short pages the
 * words of that URL; otherwise a page that says "X was not found" would be new for every X.
 *
 * The figures of a block are its numbers. They show that two pages with one text are no copies. A
 * number of the page's URL is no figure. A number that is one more than the number before it, as in
 * a calendar, is no figure either. */

#include <string.h>

#include "samples.h"

#define WINDOW 21 /* 64 bits, shifted by three for each byte */
#define LEAST_ECHO 4
#define LEAST_WORD 2
#define MOST_WORDS 32
#define GAP '\0'    /* replaces text that was taken out; no piece crosses it */
#define ALWAYS 7
#define THIN 1024 /* a page with at most this many bytes keeps each short block, such as a name or a cell */
#define SHORT SAMPLED /* on a page with fewer bytes than this, words of its URL are left out */

static uint64_t gear[256]; /* 0 for a digit, a gap and the end of a block */
static enum nature { OTHER, WORD, BOTH } natures[256]; /* of bytes; BOTH may begin punctuation */

static uint64_t mixed(uint64_t number) {
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
    number = (number ^ number >> 27) * 0x94d049bb133111ebu;
    return number ^ number >> 31;
}

static int in_word(unsigned char byte);

void samples_begin(void) {
    for (unsigned byte = 0; byte < 256; byte++)
        gear[byte] = mixed((byte + 1) * 0x9e3779b97f4a7c15u);
    memset(gear + '0', 0, 10 * sizeof *gear);
    gear['\n'] = gear[GAP] = 0;
    for (unsigned byte = 0; byte < 256; byte++)
        natures[byte] = in_word((unsigned char)byte) ? WORD : OTHER;
    natures[0xc2] = natures[0xe2] = natures[0xe3] = BOTH;
}

/* Return whether a number has a fraction. */
static int is_decimal(const char *text, size_t length) {
    size_t at = 1;
    while (at < length && at < 12 && (unsigned char)(text[at] - '0') < 10)
        at++;
    return at + 1 < length && (text[at] == '.' || text[at] == ',') &&
           (unsigned char)(text[at + 1] - '0') < 10;
}

/* Keep a tag of a hash. The last three bits of the tag are its level: the number of zero bits
 * that the hash begins with, or ALWAYS for a short block that is kept beside the samples. */
static void keep_at(struct samples *samples, uint64_t hash, unsigned level) {
    uint32_t tag = (uint32_t)mixed(hash) << 3 | level;
    tag += 8 * !(tag >> 3);
    for (unsigned at = tag % SAMPLE_SLOTS; samples->slots[at] != tag; at = (at + 1) % SAMPLE_SLOTS)
        if (samples->slots[at] == 0) {
            if (samples->count < MOST_SAMPLES) {
                samples->slots[at] = tag;
                samples->count++;
            }
            return;
        }
}

static void keep(struct samples *samples, uint64_t hash) {
    unsigned level = (hash ? (unsigned)__builtin_clzll(hash) : 64) - LEAST_SHIFT;
    keep_at(samples, hash, level < ALWAYS ? level : ALWAYS - 1);
}

/* Add a number to the figures of a block; their order does not matter. */
static void count_figure(struct samples *samples, struct figures *block, uint64_t number) {
    uint64_t next = samples->last + 1;
    samples->last = number;
    if (number == next)
        return;
    for (unsigned at = 0; at < samples->own_count; at++)
        if (samples->own[at] == number)
            return;
    block->value += (uint32_t)mixed(number + 0x9e3779b97f4a7c15u);
    block->label += block->label < 15;
}

/* Keep the figures of a block; `hash` is a hash of its other text. Blocks that differ only in
 * their figures, such as the rows of a table, are kept together. */
static void end_figures(struct samples *samples, struct figures *block, uint64_t hash) {
    uint32_t label = (uint32_t)mixed(hash + 1) & ~(uint32_t)15, count = block->label, at = 0;
    for (; at < samples->figures_count; at++)
        if ((samples->figures[at].label & ~(uint32_t)15) == label)
            break;
    struct figures *found = samples->figures + at;
    if (at < samples->figures_count) {
        count += found->label & 15;
        found->label = label | (count < 15 ? count : 15);
        found->value += block->value;
    } else if (at < MOST_FIGURES) {
        *found = (struct figures){label | count, block->value};
        samples->figures_count++;
    }
    *block = (struct figures){0, 0};
}

void samples_own(struct samples *samples, const char *url) {
    while (*url && samples->own_count < MOST_OWN) {
        if ((unsigned char)(*url - '0') >= 10) {
            url++;
            continue;
        }
        uint64_t number = 0;
        for (; (unsigned char)(*url - '0') < 10; url++)
            number = 10 * number + (unsigned char)(*url - '0');
        samples->own[samples->own_count++] = number;
    }
}

static unsigned lower(unsigned char byte) {
    return byte | (unsigned)((unsigned char)(byte - 'A') < 26) << 5;
}

static int in_word(unsigned char byte) {
    return byte >= 0x80 || (unsigned char)(byte - '0') < 10 ||
           (unsigned char)(lower(byte) - 'a') < 26;
}

/* Return the number of bytes of a quotation mark, a dash or the like beyond ASCII; 0 if `text`
 * begins with none. */
static size_t punctuation(const char *text, size_t left) {
    unsigned char first = (unsigned char)*text, next = left > 1 ? (unsigned char)text[1] : 0;
    if (first == 0xc2 && next >= 0x80)
        return 2;
    return left > 2 && ((first == 0xe2 && next <= 0x81) || (first == 0xe3 && next == 0x80)) ? 3 : 0;
}

static uint32_t word_hash(uint32_t hash, unsigned char byte) {
    return (hash ^ lower(byte)) * 0x01000193u;
}

static int hex(unsigned char byte) {
    unsigned letter = lower(byte);
    if ((unsigned char)(byte - '0') < 10)
        return byte - '0';
    return letter - 'a' < 6 ? (int)(letter - 'a') + 10 : -1;
}

/* Hashes of the words of a URL. For each first letter, `lengths` has the lengths of its words as
 * bits. */
struct words {
    uint32_t hashes[MOST_WORDS], lengths[32];
    unsigned count;
};

static uint32_t length_bit(size_t length) {
    return (uint32_t)1 << (length < 31 ? length : 31);
}

static struct words words_of(const char *url) {
    struct words words = {.count = 0};
    unsigned length = 0;
    uint32_t hash = 0;
    unsigned char first = 0;
    for (;;) {
        unsigned char byte = (unsigned char)*url;
        if (byte == '%' && hex((unsigned char)url[1]) >= 0 && hex((unsigned char)url[2]) >= 0) {
            byte = (unsigned char)(hex((unsigned char)url[1]) << 4 | hex((unsigned char)url[2]));
            url += 2;
        }
        if (in_word(byte)) {
            first = length == 0 ? byte : first;
            hash = word_hash(hash, byte), length++;
        } else {
            if (length >= LEAST_WORD && words.count < MOST_WORDS) {
                words.hashes[words.count++] = hash;
                words.lengths[lower(first) & 31] |= length_bit(length);
            }
            hash = 0, length = 0;
        }
        if (*url++ == 0)
            return words;
    }
}

static int has(const struct words *words, const char *text, size_t length) {
    if (!(words->lengths[lower((unsigned char)*text) & 31] & length_bit(length)))
        return 0;
    uint32_t hash = 0;
    for (size_t i = 0; i < length; i++)
        hash = word_hash(hash, (unsigned char)text[i]);
    for (unsigned at = 0; at < words->count; at++)
        if (words->hashes[at] == hash)
            return 1;
    return 0;
}

/* Replace every `what` in a text by a gap; return the new length. */
static size_t without(char *text, size_t length, const char *what, size_t size) {
    const char *from = text, *end = text + length, *found = text;
    char *to = text;
    /* `what` begins with a slash, which is rare in a text */
    while ((found = memchr(found, *what, (size_t)(end - found))) != NULL) {
        if ((size_t)(end - found) < size)
            break;
        if (memcmp(found, what, size) != 0) {
            found++;
            continue;
        }
        memmove(to, from, (size_t)(found - from));
        to += found - from;
        *to++ = GAP;
        from = found += size;
    }
    if (to != from)
        memmove(to, from, (size_t)(end - from));
    return (size_t)(to - text) + (size_t)(end - from);
}

size_t without_echo(char *text, size_t length, const char *url) {
    size_t whole = strcspn(url, "?"), kept = 0, from = 0; /* from there on nothing was moved yet */
    if (whole >= LEAST_ECHO)
        length = without(text, length, url, whole);
    if (length >= SHORT)
        return length;
    struct words words = words_of(url);
    for (size_t i = 0; i < length;) {
        size_t begin = i;
        for (; i < length; i++) {
            enum nature nature = natures[(unsigned char)text[i]];
            if (nature == OTHER || (nature == BOTH && punctuation(text + i, length - i)))
                break;
        }
        if (i - begin >= LEAST_WORD && has(&words, text + begin, i - begin)) {
            memmove(text + kept, text + from, begin - from);
            kept += begin - from;
            if (i < length && strchr(" -_+./", text[i]) != NULL)
                i++; /* words with one separator between them make one gap */
            if (kept == 0 || text[kept - 1] != GAP)
                text[kept++] = GAP;
            from = i;
        } else if (i < length) {
            size_t more = punctuation(text + i, length - i);
            i += more + (more == 0);
        }
    }
    memmove(text + kept, text + from, length - from);
    return kept + length - from;
}

void samples_take(struct samples *samples, char *text, size_t length) {
    unsigned shift = LEAST_SHIFT;
    while (shift < 24 && length >> shift > MOST_SAMPLES / 2)
        shift++;
    samples->shift = shift;
    uint64_t hash = 0, word, limit = (uint64_t)1 << (64 - shift), number = 0;
    struct figures block = {0, 0};
    samples->last = UINT64_MAX - 1;
    size_t fed = 0;
    int fraction = 0, counted = 1; /* whether `number` was added to the figures of its block */
    unsigned cut = 0; /* 1 after a gap in a block: the oldest bit of the hash still depends on a byte before the gap */
    char *end = text + length;
    *end = '\n';
    for (const char *at = text;; at++) {
        const char *begin = at;
        while ((word = gear[(unsigned char)*at]) != 0) {
            hash = (hash << 3) + word;
            at++;
            if (hash < limit && fed + (size_t)(at - begin) >= WINDOW + cut)
                keep(samples, hash);
        }
        fed += (size_t)(at - begin);
        if (*at == '\n') {
            if (!counted)
                count_figure(samples, &block, number), counted = 1;
            if (block.label)
                end_figures(samples, &block, hash);
            if (fed && !cut && fed < WINDOW) {
                hash = mixed(hash);
                if (hash < limit)
                    keep(samples, hash);
                else if (length <= THIN)
                    keep_at(samples, hash, ALWAYS);
            }
            if (at == end)
                return;
            hash = 0, fed = 0, cut = 0;
            continue;
        }
        if (*at == GAP) {
            hash = 0, fed = 0, cut = 1;
            continue;
        }
        unsigned char last = at > text ? (unsigned char)at[-1] : 0;
        if ((unsigned char)(last - '0') < 10) {
            number = 10 * number + (unsigned char)(*at - '0');
            if (!fraction)
                continue;
        } else {
            if (!counted)
                count_figure(samples, &block, number);
            counted = 0, number = (unsigned char)(*at - '0');
            fraction = ((last == '.' || last == ',') && at > text + 1 &&
                        (unsigned char)(at[-2] - '0') < 10) ||
                       is_decimal(at, (size_t)(end - at));
        }
        hash = (hash << 3) + mixed(0x100u + (fraction ? (unsigned char)*at : '0'));
        fed++;
        if (hash < limit && fed >= WINDOW + cut)
            keep(samples, hash);
    }
}

void samples_image(struct samples *samples, const char *source) {
    if (source == NULL || *source == 0 || samples->image_count == MOST_IMAGES ||
        strncmp(source, "data:", 5) == 0)
        return;
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *source && *source != '?' && *source != '#'; source++)
        hash = (hash ^ (unsigned char)*source) * 0x100000001b3u;
    uint32_t tag = (uint32_t)mixed(hash);
    samples->images[samples->image_count++] = tag + !tag;
}

/* The same hash in all processes, unlike Python's. */
uint64_t string_hash(const char *text, size_t length, uint64_t salt) {
    uint64_t hash = mixed(salt ^ length), eight;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&eight, text, 8);
        hash = (hash ^ eight) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    eight = 0;
    memcpy(&eight, text, length);
    return mixed(hash ^ eight);
}

void tag_expected(uint64_t tag, const uint32_t *table, size_t slots) {
    __builtin_prefetch(table + (tag >> 32 & (slots / 4 - 1)) * 4, 1);
}

/* Processes share tables without a lock: if two write to one place, one tag may be lost.
 *
 * Four tags are side by side, the most recent first. A new tag replaces the last one. */
int tag_known(uint64_t tag, uint32_t *table, size_t slots, int keep) {
    uint32_t short_tag = (uint32_t)tag + !(uint32_t)tag;
    uint32_t *near = table + (tag >> 32 & (slots / 4 - 1)) * 4;
    unsigned at = 0;
    while (at < 3 && near[at] != short_tag)
        at++;
    int known = near[at] == short_tag;
    if (keep) {
        memmove(near + 1, near, at * sizeof *near);
        *near = short_tag;
    }
    return known;
}

unsigned tags_new(const uint32_t *tags, size_t count, uint64_t salt, uint32_t *table, size_t slots,
                  unsigned level, unsigned *looked, unsigned *beside) {
    unsigned unknown = 0, all = 0, others = 0;
    for (size_t i = 0; i < count; i++)
        tag_expected(mixed(tags[i] ^ salt), table, slots);
    for (size_t i = 0; i < count; i++) {
        unsigned own = tags[i] & 7, counts = own >= level && own != ALWAYS;
        unsigned is_new = !tag_known(mixed(tags[i] ^ salt), table, slots, 1);
        all += counts;
        unknown += counts && is_new;
        others += own == ALWAYS && is_new;
    }
    *looked = all;
    *beside = others;
    return unknown;
}
