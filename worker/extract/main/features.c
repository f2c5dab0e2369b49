/* The features of a block, as numbers from 0 to 255. Training and use share this definition. */

#include "main.h"

struct row {
    uint8_t *values;
    const char **names; /* NULL unless the names are wanted */
    int *numbers;
    unsigned count;
};

/* `number` distinguishes features of the same name; it is -1 if there is only one. */
static inline void put(struct row *row, const char *name, int number, uint32_t value) {
    if (row->names != NULL) {
        row->names[row->count] = name;
        row->numbers[row->count] = number;
    }
    row->values[row->count++] = (uint8_t)(value > 255 ? 255 : value);
}

/* 16 log2(1 + n), linear between powers of 2. */
static inline uint32_t scale(uint32_t n) {
    uint64_t more = (uint64_t)n + 1;
    unsigned power = 63 - (unsigned)__builtin_clzll(more);
    return 16 * power + (uint32_t)((more << 4 >> power) & 15);
}

static inline uint32_t share(uint64_t part, uint64_t whole) {
    return whole == 0 ? 255 : part >= whole ? 250 : (uint32_t)(part * 250 / whole);
}

#define TAIL_GROUPS 8 /* the first groups of words of texts: text below such words is seldom main text */
#define CORES 4
static const unsigned core_percent[CORES] = {30, 50, 70, 90};

/* Sums over all blocks before each block, and facts about the whole page. */
struct sums {
    struct before {
        uint32_t length, linked, good;
    } *before; /* for each block, and one after the last */
    uint32_t cores[CORES];
    uint32_t longest, tops, boldest, images, inputs, items, cells, repeated, first_top, articles, mains;
};

/* Return the deepest element that holds this percentage of the good text; 0 if there is none. */
static uint32_t core_of(const struct blocks *page, unsigned percent) {
    uint64_t all = page->elements[0].good;
    uint32_t found = 0;
    for (uint32_t i = 1; all && i < page->element_count; i++) {
        const struct element *one = &page->elements[i], *best = &page->elements[found];
        if (one->good * 100ull >= all * percent &&
            (one->depth > best->depth || (one->depth == best->depth && one->good > best->good)))
            found = i;
    }
    return found;
}

static int sum_up(const struct blocks *page, struct sums *sums) {
    struct before *before = PyMem_RawMalloc(((size_t)page->block_count + 1) * sizeof *before);
    if (before == NULL)
        return 0;
    *sums = (struct sums){.before = before, .first_top = UINT32_MAX};
    struct before so_far = {0, 0, 0};
    for (uint32_t i = 0; i < page->block_count; i++) {
        const struct block *block = &page->blocks[i];
        uint8_t tag = page->elements[block->element].tag;
        before[i] = so_far;
        so_far.length += block->length, so_far.linked += block->linked, so_far.good += block->good;
        sums->longest = block->length > sums->longest ? block->length : sums->longest;
        if (block->heading == 1) {
            sums->first_top = sums->first_top == UINT32_MAX ? i : sums->first_top;
            sums->tops++;
        }
        sums->images += block->images, sums->inputs += block->inputs;
        sums->items += tag == LI, sums->cells += tag == CELL;
        sums->repeated += block->repeats > 1;
    }
    before[page->block_count] = so_far;
    for (uint32_t i = 0; i < page->element_count; i++) {
        sums->articles += page->elements[i].tag == ARTICLE;
        sums->mains += page->elements[i].tag == MAIN;
    }
    for (int i = 0; i < CORES; i++)
        sums->cores[i] = core_of(page, core_percent[i]);
    return 1;
}

static uint32_t type_of(const struct blocks *page, const struct block *block) {
    if (block->heading)
        return 1;
    switch (page->elements[block->element].tag) {
    case P: return 2;
    case LI: return 3;
    case CELL: case HEADCELL: return 4;
    case DIV: return 5;
    case BUTTON: case SUMMARY: return 6;
    case PRE: return 7;
    default: return 8;
    }
}

static uint32_t level_of(const struct blocks *page, uint32_t element) {
    const struct element *own = &page->elements[element];
    return own->last - own->first > 1 ? element : own->wider;
}

static void put_own(struct row *row, const struct blocks *page, const struct block *block) {
    const struct element *own = &page->elements[block->element], *parent = &page->elements[own->parent];
    uint32_t marks = block->sentences + block->commas;
    put(row, "length", -1, scale(block->length));
    put(row, "linked", -1, share(block->linked, block->length));
    put(row, "sentences", -1, scale(block->sentences));
    put(row, "commas", -1, scale(block->commas));
    put(row, "density", -1, marks * 2000u / (block->length + 1));
    put(row, "digits", -1, share(block->digits, block->length));
    put(row, "capitals", -1, share(block->capitals, block->length));
    put(row, "bold", -1, share(block->bold, block->length));
    put(row, "links", -1, scale(block->links));
    put(row, "end", -1, block->ends);
    put(row, "breaks", -1, block->breaks);
    put(row, "images", -1, block->images);
    put(row, "inputs", -1, block->inputs);
    put(row, "times", -1, block->times);
    put(row, "year", -1, block->year);
    for (int i = 0; i < 7; i++)
        if (i != 2 && i != 4)
            put(row, "symbol", i, block->symbols >> i & 1);
    put(row, "titled", -1, block->titled);
    put(row, "heading", -1, block->heading);
    put(row, "repeats", -1, scale(block->repeats));
    put(row, "type", -1, type_of(page, block));
    put(row, "p", -1, own->tag == P);
    put(row, "li", -1, own->tag == LI);
    put(row, "cell", -1, own->tag == CELL);
    put(row, "div", -1, own->tag == DIV);
    put(row, "definition", -1, own->tag == DT || own->tag == DD);
    put(row, "button", -1, own->tag == BUTTON || own->tag == SUMMARY);
    put(row, "caption", -1, own->tag == CAPTION);
    put(row, "custom", -1, own->tag == CUSTOM);
    put(row, "siblings", -1, scale(own->siblings));
    put(row, "depth", -1, own->depth);
    for (int i = 0; i < ABOVES; i++)
        put(row, "above", i, own->above >> i & 1);
    uint32_t near = own->groups | block->groups | (own->last - own->first <= 3 ? parent->groups : 0);
    for (int i = 0; i < CLASS_GROUPS; i++)
        put(row, "near", i, near >> i & 1);
    for (int i = 0; i < CLASS_GROUPS; i++)
        put(row, "around", i, own->groups_above >> i & 1);
    for (int i = 0; i < TEXT_GROUPS; i++)
        put(row, "hint", i, block->hints >> i & 1);
}

/* The nearest block of each kind, before a block or after it; UINT32_MAX: there is none. */
struct nearest {
    uint32_t heading, titled, good_before, good_after, date;
    uint32_t hints[TEXT_GROUPS]; /* short texts with words of these groups */
    uint32_t linked_run;         /* how many blocks in a row, up to here, are links */
};

static void put_place(struct row *row, const struct blocks *page, const struct sums *sums, uint32_t i,
                      const struct nearest *nearest) {
    const struct before *before = &sums->before[i], *all = &sums->before[page->block_count];
    put(row, "place", -1, share(i, page->block_count));
    put(row, "place in text", -1, share(before->length, all->length));
    put(row, "from begin", -1, scale(i));
    put(row, "from end", -1, scale(page->block_count - 1 - i));
    uint32_t top = sums->first_top;
    put(row, "behind h1", -1, top == UINT32_MAX ? 255 : i >= top ? scale(i - top) : 254);
    put(row, "before h1", -1, top == UINT32_MAX ? 255 : i < top ? scale(top - i) : 0);
    put(row, "behind title", -1, nearest->titled == UINT32_MAX ? 255 : scale(i - nearest->titled));
    const struct block *heading = nearest->heading == UINT32_MAX ? NULL : &page->blocks[nearest->heading];
    put(row, "behind heading", -1, heading == NULL ? 255 : scale(i - nearest->heading));
    put(row, "heading above", -1, heading == NULL ? 0 : heading->heading);
    put(row, "heading linked", -1, heading == NULL ? 255 : share(heading->linked, heading->length));
    for (int j = 0; j < TEXT_GROUPS; j++)
        put(row, "heading hint", j, heading == NULL ? 0 : heading->hints >> j & 1);
    for (int j = 0; j < TAIL_GROUPS; j++)
        put(row, "behind hint", j, nearest->hints[j] == UINT32_MAX ? 255 : scale(i - nearest->hints[j]));
    put(row, "behind date", -1, nearest->date == UINT32_MAX ? 255 : scale(i - nearest->date));
    put(row, "linked run", -1, scale(nearest->linked_run));
    put(row, "in body", -1, page->blocks[i].in_body);
    put(row, "in description", -1, page->blocks[i].in_description);
    put(row, "good before", -1, scale(before->good));
    put(row, "good after", -1, scale(all->good - sums->before[i + 1].good));
    put(row, "behind good", -1, nearest->good_before == UINT32_MAX ? 255 : scale(i - nearest->good_before));
    put(row, "before good", -1, nearest->good_after == UINT32_MAX ? 255 : scale(nearest->good_after - i));
    put(row, "length of good before", -1,
        nearest->good_before == UINT32_MAX ? 0 : scale(page->blocks[nearest->good_before].length));
    put(row, "length of good after", -1, nearest->good_after == UINT32_MAX ? 0 : scale(page->blocks[nearest->good_after].length));
}

#define LEVELS 4

static void put_levels(struct row *row, const struct blocks *page, const struct sums *sums, uint32_t i) {
    uint32_t at = page->blocks[i].element, below = at;
    uint32_t all = page->elements[0].length;
    for (int level = 0; level < LEVELS; level++) {
        uint32_t up = level ? page->elements[at].wider : level_of(page, at);
        while (below != up && page->elements[below].parent != up && below)
            below = page->elements[below].parent;
        const struct element *own = &page->elements[up];
        uint32_t count = own->last - own->first;
        put(row, "level length", level, scale(own->length));
        put(row, "level linked", level, share(own->linked, own->length));
        put(row, "level blocks", level, scale(count));
        put(row, "level paragraphs", level, share(own->in_paragraphs, own->length));
        put(row, "level good", level, share(own->good, own->length));
        put(row, "level good before", level, scale(sums->before[i].good - sums->before[own->first].good));
        put(row, "level good after", level, scale(sums->before[own->last].good - sums->before[i + 1].good));
        put(row, "level share", level, share(own->length, all));
        put(row, "level place", level, share(i - own->first, count));
        put(row, "level siblings", level, below == up ? 0 : scale(page->elements[below].siblings));
        at = below = up;
    }
}

static void put_cores(struct row *row, const struct blocks *page, const struct sums *sums, uint32_t i) {
    for (int j = 0; j < CORES; j++) {
        const struct element *core = &page->elements[sums->cores[j]];
        int none = sums->cores[j] == 0, before = i < core->first, behind = i >= core->last;
        put(row, "core", j, none ? 3 : before ? 0 : behind ? 2 : 1);
        put(row, "core distance", j, none ? 255 : before ? scale(core->first - i) : behind ? scale(i - core->last + 1) : 0);
        put(row, "core place", j, none || before || behind ? 255 : share(i - core->first, core->last - core->first));
    }
}

#define REACH 2
#define WINDOW 10

static void put_neighbours(struct row *row, const struct blocks *page, const struct sums *sums, uint32_t i) {
    uint32_t all = page->block_count;
    for (int j = -REACH; j <= REACH; j++) {
        int64_t at = (int64_t)i + j;
        if (j == 0)
            continue;
        const struct block *other = at < 0 || at >= all ? NULL : &page->blocks[at];
        put(row, "neighbour length", j, other == NULL ? 255 : scale(other->length));
        put(row, "neighbour linked", j, other == NULL ? 255 : share(other->linked, other->length));
        put(row, "neighbour type", j, other == NULL ? 0 : type_of(page, other));
        put(row, "neighbour end", j, other == NULL ? 255 : other->ends);
    }
    for (int side = 0; side < 2; side++) {
        uint32_t from = side ? i + 1 : i < WINDOW ? 0 : i - WINDOW;
        uint32_t to = side ? (all - i <= WINDOW ? all : i + 1 + WINDOW) : i;
        const struct before *one = &sums->before[from], *two = &sums->before[to];
        put(row, "window length", side, scale(two->length - one->length));
        put(row, "window linked", side, share(two->linked - one->linked, two->length - one->length));
        put(row, "window good", side, two->good - one->good);
    }
}

static void put_page(struct row *row, const struct blocks *page, const struct sums *sums) {
    const struct element *all = &page->elements[0];
    put(row, "page length", -1, scale(all->length));
    put(row, "page blocks", -1, scale(page->block_count));
    put(row, "page linked", -1, share(all->linked, all->length));
    put(row, "page paragraphs", -1, share(all->in_paragraphs, all->length));
    put(row, "page good", -1, share(all->good, all->length));
    put(row, "page good blocks", -1, scale(sums->before[page->block_count].good));
    put(row, "page headings", -1, share(all->headings, all->length));
    put(row, "page longest", -1, scale(sums->longest));
    put(row, "page h1", -1, sums->tops);
    put(row, "page articles", -1, sums->articles);
    put(row, "page mains", -1, sums->mains);
    put(row, "page images", -1, scale(sums->images));
    put(row, "page inputs", -1, scale(sums->inputs));
    put(row, "page items", -1, share(sums->items, page->block_count));
    put(row, "page cells", -1, share(sums->cells, page->block_count));
    put(row, "page repeated", -1, share(sums->repeated, page->block_count));
    for (int i = 0; i < 6; i++)
        put(row, "page says", i, page->kind >> i & 1);
    put(row, "page core", -1, share(page->elements[sums->cores[1]].length, all->length));
}

static void put_alike(struct row *row, const struct blocks *page, const struct alike *alike, uint32_t i) {
    const struct block *block = &page->blocks[i];
    uint32_t all = page->elements[0].length, at = alike->record[block->element];
    const struct alike_sum *kin = &alike->sums[alike->kin[block->element]];
    put(row, "kin", -1, scale(kin->blocks));
    put(row, "kin length", -1, kin->blocks ? scale(kin->length / kin->blocks) : 0);
    put(row, "kin linked", -1, share(kin->linked, kin->length));
    put(row, "kin good", -1, share(kin->good, kin->length));
    put(row, "kin share", -1, share(kin->length, all));
    put(row, "kin repeated", -1, share(kin->repeated, kin->blocks));
    put(row, "kin spread", -1, kin->blocks ? share(kin->last - kin->first, page->block_count) : 255);
    const struct element *record = &page->elements[at];
    const struct alike_sum *records = &alike->sums[alike->group[at]];
    put(row, "records", -1, at ? scale(records->members) : 0);
    put(row, "records length", -1, at ? scale(records->length / records->members) : 0);
    put(row, "records blocks", -1, at ? scale(records->blocks / records->members) : 0);
    put(row, "records linked", -1, at ? share(records->linked, records->length) : 255);
    put(row, "records good", -1, at ? share(records->good, records->length) : 255);
    put(row, "records share", -1, at ? share(records->length, all) : 255);
    put(row, "record place", -1, at ? scale(i - record->first) : 255);
    put(row, "record length", -1, at ? scale(record->length) : 0);
    put(row, "records begin", -1, at ? share(records->first, page->block_count) : 255);
}

/* Write one row of `width` bytes for each block. If `names` is given, the first row also fills in the
 * names. */
static int put_rows(const struct blocks *page, uint8_t *rows, unsigned width, const char **names, int *numbers,
                    unsigned *count) {
    struct sums sums;
    struct alike alike;
    if (!alike_read(&alike, page))
        return 0;
    if (!sum_up(page, &sums)) {
        alike_free(&alike);
        return 0;
    }
    struct nearest nearest;
    memset(&nearest, 255, sizeof nearest);
    nearest.good_after = nearest.linked_run = 0;
    uint8_t common[64];
    struct row shared = {common, NULL, NULL, 0};
    put_page(&shared, page, &sums);
    for (uint32_t i = 0; i < page->block_count; i++) {
        const struct block *block = &page->blocks[i];
        struct row row = {rows + (size_t)i * width, names, numbers, 0};
        while (nearest.good_after != UINT32_MAX &&
               (nearest.good_after <= i || !page->blocks[nearest.good_after].good))
            nearest.good_after = nearest.good_after + 1 < page->block_count ? nearest.good_after + 1 : UINT32_MAX;
        nearest.linked_run = block->linked * 5ull >= block->length * 4ull ? nearest.linked_run + 1 : 0;
        put_own(&row, page, block);
        put_place(&row, page, &sums, i, &nearest);
        put_levels(&row, page, &sums, i);
        put_cores(&row, page, &sums, i);
        put_neighbours(&row, page, &sums, i);
        put_alike(&row, page, &alike, i);
        if (names != NULL) {
            put_page(&row, page, &sums);
        } else {
            memcpy(row.values + row.count, common, shared.count);
            row.count += shared.count;
        }
        *count = row.count;
        if (block->heading)
            nearest.heading = i;
        if (block->titled)
            nearest.titled = i;
        if (block->good)
            nearest.good_before = i;
        if (block->length <= 40 && (block->year || block->times || block->hints >> DATE_WORDS & 1))
            nearest.date = i;
        for (int j = 0; j < TAIL_GROUPS && block->length <= 60; j++)
            if (block->hints >> j & 1)
                nearest.hints[j] = i;
    }
    PyMem_RawFree(sums.before);
    alike_free(&alike);
    return 1;
}

unsigned features_names(const char **names, int *numbers) {
    struct element elements[1] = {{.last = 1}};
    struct block blocks[1] = {{.length = 1, .repeats = 1}};
    struct blocks page = {.elements = elements, .element_count = 1, .blocks = blocks, .block_count = 1};
    uint8_t row[2 * MOST_FEATURES];
    unsigned count = 0;
    return put_rows(&page, row, 0, names, numbers, &count) ? count : 0;
}

int features_of(struct blocks *page, uint8_t *rows, unsigned width) {
    unsigned count = 0;
    return put_rows(page, rows, width, NULL, NULL, &count);
}
