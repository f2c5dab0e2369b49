/* Choose blocks by the probabilities that the trees give them. */

#include "main.h"

struct candidate {
    float score;
    uint32_t block;
};

static int by_score(const void *one, const void *other) {
    const struct candidate *a = one, *b = other;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->block < b->block ? -1 : a->block > b->block;
}

/* Comments of readers are no main text if markup marks them as comments and the page is neither a forum
 * nor a shop. The trees decide this for all comments of the page together. If little other text is
 * expected, their scores must be lower to set them apart: on a page that only links to something, the
 * discussion is the main text. An element with a heading of the page holds no comments, whatever its name.
 * `apart` gets a 1 for each block that is a comment. */
#define APART 0.65
#define ALONE_LEAST 500 /* characters */
#define ALONE_MOST 1000

static int comments_apart(const struct blocks *page, const float *scores, uint8_t *apart) {
    double score = 0, length = 0, beside = 0;
    uint32_t top = 0, end = 0; /* the next heading of level 1, and the end of the last comments */
    if (page->kind & (SAYS_FORUM | SAYS_PRODUCT)) /* reviews belong to a product */
        return 0;
    for (uint32_t i = 1; i < page->element_count; i++) {
        const struct element *own = &page->elements[i];
        if (!(own->above & HOLDS_COMMENTS) || own->first < end)
            continue;
        while (top < page->block_count && (top < own->first || page->blocks[top].heading != 1))
            top++;
        if (top < own->last)
            continue;
        end = own->last;
        for (uint32_t j = own->first; j < end; j++) {
            apart[j] = 1;
            score += (double)scores[j] * page->blocks[j].length;
            length += page->blocks[j].length;
        }
    }
    for (uint32_t j = 0; j < page->block_count; j++)
        beside += apart[j] ? 0 : (double)scores[j] * page->blocks[j].length;
    double alone = length < ALONE_LEAST ? ALONE_LEAST : length < ALONE_MOST ? length : ALONE_MOST;
    return score * (beside + alone) < APART * length * beside;
}

/* Return whether a block is what a reader wrote, and not a name, a date or a control beside it. */
static int is_comment(const struct blocks *page, const struct block *block) {
    const struct element *own = &page->elements[block->element];
    if (own->above & (IN_FORM | IN_NAV | IN_DIALOG) || own->tag == BUTTON || block->heading ||
        block->linked * 2 >= block->length)
        return 0;
    if (block->length <= 40 && (block->year || block->times || block->hints >> DATE_WORDS & 1))
        return 0;
    return own->tag == P || block->sentences || block->length >= 40;
}

/* A table of data is one thing: its cells share one score, and cells that repeat each other all stay.
 * `tables` gets the table of each block; 0: none. */
static void share_tables(const struct blocks *page, float *scores, uint32_t *tables) {
    for (uint32_t i = 1; i < page->element_count; i++) {
        const struct element *own = &page->elements[i];
        if (own->tag != TABLE || own->last - own->first < 2 || !holds_data(page, i))
            continue;
        double score = 0, length = 0;
        for (uint32_t j = own->first; j < own->last; j++) {
            score += (double)scores[j] * page->blocks[j].length;
            length += page->blocks[j].length;
        }
        for (uint32_t j = own->first; length > 0 && j < own->last; j++) {
            scores[j] = (float)(score / length);
            tables[j] = i;
        }
    }
}

/* The trees learnt from few very long texts, so their scores fall towards the end of one. If there are
 * many blocks of one form, and the first of them have a high average, the others get at least that
 * average. Return false if there is no memory. */
#define MANY_KIN 120
#define FIRST_KIN 40
#define KIN_LEAST 0.7f

static int share_kin(const struct blocks *page, float *scores) {
    struct {
        uint32_t form, count;
        double score; /* of the first ones */
    } *table;
    size_t size = 64;
    if (page->block_count <= MANY_KIN)
        return 1;
    while (size < 2 * (size_t)page->block_count)
        size *= 2;
    uint32_t *at = PyMem_RawMalloc(page->block_count * sizeof *at);
    table = PyMem_RawCalloc(size, sizeof *table);
    for (uint32_t i = 0; at != NULL && table != NULL && i < page->block_count; i++) {
        uint32_t form = page->elements[page->blocks[i].element].form;
        size_t slot = slot_for(form, size);
        while (table[slot].count && table[slot].form != form)
            slot = (slot + 1) & (size - 1);
        table[slot].form = form;
        table[slot].score += table[slot].count++ < FIRST_KIN ? (double)scores[i] : 0;
        at[i] = (uint32_t)slot;
    }
    for (uint32_t i = 0; at != NULL && table != NULL && i < page->block_count; i++) {
        float average = (float)(table[at[i]].score / FIRST_KIN);
        if (table[at[i]].count > MANY_KIN && average >= KIN_LEAST && scores[i] < average)
            scores[i] = average;
    }
    int well = at != NULL && table != NULL;
    PyMem_RawFree(at);
    PyMem_RawFree(table);
    return well;
}

#define HEADING_LEAST 0.5f

/* Return whether, of two blocks with the same text, the first stands for both. A block that is no comment
 * wins; then a heading of the text, which a list of contents repeats; then the higher score. */
static int is_better(const struct blocks *page, const float *scores, const uint8_t *apart, uint32_t one,
                     uint32_t other) {
    int heads[2];
    if (apart[one] != apart[other])
        return apart[other];
    for (int i = 0; i < 2; i++) {
        uint32_t at = i ? other : one;
        const struct block *block = &page->blocks[at];
        heads[i] = block->heading && block->linked * 2 < block->length && scores[at] >= HEADING_LEAST;
    }
    return heads[0] != heads[1] ? heads[0] : scores[one] > scores[other];
}

/* A heading is taken together with the text below it, even with a lower score. Exceptions are the title of
 * the page, which is stored elsewhere, and headings with a word such as "related" or "share". */
#define ABOVE_LEAST 0.3f
#define TAIL_WORDS 0xffu /* bits of the first groups of words of texts, as in features.c */

static int heads_text(const struct block *block, float score) {
    return block->heading && block->titled < 2 && block->linked * 2 < block->length && score >= ABOVE_LEAST &&
           !(block->hints & TAIL_WORDS);
}

/* The text of a product is short, and much text around it looks the same. */
#define PRODUCT_RECALL 0.75

#define REPEATED_BYTES 15 /* texts of at least this length are taken once */

/* Choose the blocks with the highest expected F measure, weighted by length. These are the blocks with the
 * highest scores, as many as maximise sum(p w) / (sum(w) + b^2 sum over all(p w)). */
int choose(const struct model *model, const struct blocks *page, float *scores, uint8_t *chosen) {
    struct candidate *candidates = PyMem_RawMalloc(((size_t)page->block_count + 1) * sizeof *candidates);
    uint32_t *best = PyMem_RawMalloc(((size_t)page->block_count + 1) * sizeof *best), count = 0;
    uint32_t *tables = PyMem_RawCalloc((size_t)page->block_count + 1, sizeof *tables);
    uint8_t *apart = PyMem_RawCalloc((size_t)page->block_count + 1, 1);
    if (candidates == NULL || best == NULL || apart == NULL || tables == NULL || !share_kin(page, scores)) {
        PyMem_RawFree(candidates);
        PyMem_RawFree(best);
        PyMem_RawFree(tables);
        PyMem_RawFree(apart);
        return 0;
    }
    share_tables(page, scores, tables);
    int split = comments_apart(page, scores, apart);
    if (!split)
        memset(apart, 0, page->block_count);
    double recall = model_recall(model), all = 0, hit = 0, taken = 0, most = 0;
    if (page->kind & SAYS_ONE_PRODUCT)
        recall *= PRODUCT_RECALL;
    uint32_t last = 0;
    for (uint32_t i = 0; i < page->block_count; i++) {
        const struct block *block = &page->blocks[i];
        chosen[i] = apart[i] && is_comment(page, block) ? COMMENT_TEXT : LEFT_OUT;
        if (block->same == i) {
            best[i] = i;
            continue;
        }
        if (is_better(page, scores, apart, i, best[block->same]))
            best[block->same] = i;
    }
    for (uint32_t i = 0; i < page->block_count; i++) {
        const struct block *block = &page->blocks[i];
        uint32_t other = best[block->same];
        int in_one_table = tables[i] && tables[i] == tables[other];
        if (block->end - block->begin >= REPEATED_BYTES && other != i && !in_one_table)
            continue;
        if (apart[i])
            continue;
        candidates[count++] = (struct candidate){scores[i], i};
        all += (double)scores[i] * block->length;
    }
    qsort(candidates, count, sizeof *candidates, by_score);
    for (uint32_t i = 0; i < count; i++) {
        double length = page->blocks[candidates[i].block].length;
        hit += (double)candidates[i].score * length;
        taken += length;
        double expected = hit / (taken + recall * recall * all);
        if (expected > most)
            most = expected, last = i + 1;
    }
    for (uint32_t i = 0; i < last; i++)
        chosen[candidates[i].block] = MAIN_TEXT;
    for (uint32_t i = page->block_count; i-- > 1;) /* from the end, since a heading may be above another one */
        if (chosen[i - 1] == LEFT_OUT && chosen[i] == MAIN_TEXT && best[page->blocks[i - 1].same] == i - 1 &&
            heads_text(&page->blocks[i - 1], scores[i - 1]) && !apart[i - 1])
            chosen[i - 1] = MAIN_TEXT;
    PyMem_RawFree(candidates);
    PyMem_RawFree(best);
    PyMem_RawFree(tables);
    PyMem_RawFree(apart);
    return 1;
}
