/* Boosted trees in packed tables, and the choice of blocks by what they say.
 *
 * A model is, all little-endian: "GCM1"; the digest of the features it was made for (4 bytes); how many
 * trees (2); how many steps of a leaf's value are 1 (4, a float); the bias (4, a float); how many times
 * as much recall counts as precision (4, a float); then for each tree the number n of its nodes (1),
 * n times feature, threshold, and where it goes on if the value is at most that, and if it is more
 * (1 each): a node, or 128 + a leaf; and n + 1 values of leaves (2 each). */

#include "main.h"

#define HEAD_BYTES 22
#define MOST_NODES 127 /* of a tree; it has one leaf more */
#define AT_ONCE 4 /* rows */
#define CHUNK 64

/* Nodes of a tree lie in one array, a pair of children side by side, so that a step is an addition.
 * A leaf leads to itself. */
struct node {
    uint8_t feature, threshold, child, unused; /* four bytes, so that a place needs no multiplication */
};

struct tree {
    uint32_t first;
    unsigned steps;
};

struct model {
    float unit, bias, recall;
    unsigned count;
    struct tree *trees;
    struct node *nodes;
    int16_t *values;
};

static unsigned two_bytes(const uint8_t *at) { return at[0] | (unsigned)at[1] << 8; }

static uint32_t four_bytes(const uint8_t *at) { return two_bytes(at) | (uint32_t)two_bytes(at + 2) << 16; }

static float a_float(const uint8_t *at) {
    uint32_t bits = four_bytes(at);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void model_free(struct model *model) {
    if (model == NULL)
        return;
    PyMem_RawFree(model->trees);
    PyMem_RawFree(model->nodes);
    PyMem_RawFree(model->values);
    PyMem_RawFree(model);
}

/* Lay one tree of `count` nodes out from place `first` on; how many steps it takes, or -1 if it is not
 * one. */
static int lay_out(struct model *model, uint32_t first, const uint8_t *nodes, unsigned count, unsigned features) {
    const uint8_t *leaves = nodes + 4 * (size_t)count;
    unsigned char from[2 * MOST_NODES + 1], depth[2 * MOST_NODES + 1];
    unsigned laid = 1, deepest = 0, leaf_count = 0, node_count = 0;
    from[0] = count ? 0 : 128;
    depth[0] = 0;
    for (unsigned i = 0; i < laid; i++) {
        struct node *node = &model->nodes[first + i];
        if (from[i] & 128) {
            unsigned leaf = from[i] & 127u;
            if (leaf > count)
                return -1;
            *node = (struct node){0, 255, (uint8_t)i, 0};
            model->values[first + i] = (int16_t)two_bytes(leaves + 2 * leaf);
            leaf_count++;
            deepest = depth[i] > deepest ? depth[i] : deepest;
        } else {
            const uint8_t *given = nodes + 4 * (size_t)from[i];
            if (++node_count > count || from[i] >= count || given[0] >= features)
                return -1;
            *node = (struct node){given[0], given[1], (uint8_t)laid, 0};
            model->values[first + i] = 0;
            for (int side = 2; side < 4; side++, laid++) {
                from[laid] = given[side];
                depth[laid] = (unsigned char)(depth[i] + 1);
            }
        }
    }
    return leaf_count == count + 1 ? (int)deepest : -1;
}

struct model *model_read(const uint8_t *data, size_t length, unsigned features, const char **problem) {
    *problem = "it is no model";
    if (length < HEAD_BYTES || memcmp(data, "GCM1", 4) != 0)
        return NULL;
    struct model *model = PyMem_RawCalloc(1, sizeof *model);
    if (model == NULL)
        return NULL;
    model->count = two_bytes(data + 8);
    model->unit = 1.0f / a_float(data + 10);
    model->bias = a_float(data + 14);
    model->recall = a_float(data + 18);
    model->trees = PyMem_RawCalloc(model->count + 1, sizeof *model->trees);
    model->nodes = PyMem_RawCalloc(length, sizeof *model->nodes); /* six bytes of a file make two nodes */
    model->values = PyMem_RawCalloc(length, sizeof *model->values);
    int well = model->trees != NULL && model->nodes != NULL && model->values != NULL;
    size_t at = HEAD_BYTES;
    uint32_t laid = 0;
    for (unsigned i = 0; well && i < model->count; i++) {
        unsigned count = at < length ? data[at] : 255;
        size_t bytes = 4 * (size_t)count + 2 * ((size_t)count + 1);
        well = count <= MOST_NODES && length - at - 1 >= bytes;
        if (!well)
            break;
        int steps = lay_out(model, laid, data + at + 1, count, features);
        well = steps >= 0;
        model->trees[i] = (struct tree){laid, (unsigned)steps};
        laid += 2 * count + 1;
        at += 1 + bytes;
    }
    if (!well || at != length) {
        model_free(model);
        return NULL;
    }
    return model;
}

/* e to the power of -x, for x of at least 0: halved until the series is short. */
static float decay(float x) {
    if (x > 40)
        return 0;
    float part = x / 1024, power = 1 - part + part * part / 2;
    for (int i = 0; i < 10; i++)
        power *= power;
    return power;
}

/* One step of one row. */
static inline unsigned step_on(const struct node *nodes, unsigned at, const uint8_t *row) {
    const struct node *node = &nodes[at];
    return node->child + (row[node->feature] > node->threshold);
}

/* Add what trees from `first` to `last` say of rows at some places to their sums. Rows of a chunk and a
 * tree lie near meanwhile; four rows go side by side, since each step waits for the one before it. */
static void add_trees(const struct model *model, unsigned first, unsigned last, const uint8_t *rows, unsigned width,
                      const uint32_t *places, uint32_t count, int32_t *sums) {
    for (uint32_t begin = 0; begin < count; begin += CHUNK) {
        const uint8_t *row[CHUNK + AT_ONCE];
        int32_t said[CHUNK + AT_ONCE] = {0};
        uint32_t some = count - begin < CHUNK ? count - begin : CHUNK;
        for (uint32_t j = 0; j < some + AT_ONCE; j++)
            row[j] = rows + (size_t)places[begin + (j < some ? j : 0)] * width;
        for (unsigned t = first; t < last; t++) {
            const struct node *nodes = model->nodes + model->trees[t].first;
            const int16_t *values = model->values + model->trees[t].first;
            for (uint32_t j = 0; j < some; j += AT_ONCE) {
                unsigned at0 = 0, at1 = 0, at2 = 0, at3 = 0;
                for (unsigned step = model->trees[t].steps; step; step--) {
                    at0 = step_on(nodes, at0, row[j]);
                    at1 = step_on(nodes, at1, row[j + 1]);
                    at2 = step_on(nodes, at2, row[j + 2]);
                    at3 = step_on(nodes, at3, row[j + 3]);
                }
                said[j] += values[at0], said[j + 1] += values[at1];
                said[j + 2] += values[at2], said[j + 3] += values[at3];
            }
        }
        for (uint32_t j = 0; j < some; j++)
            sums[places[begin + j]] += said[j];
    }
}

/* Of blocks that a quarter of the trees hold for less than this, no more trees are asked. */
#define HOPELESS -3.5f

int model_scores(const struct model *model, const uint8_t *rows, unsigned width, uint32_t count, float *scores) {
    int32_t *sums = PyMem_RawCalloc((size_t)count + 1, sizeof *sums);
    uint32_t *places = PyMem_RawMalloc(((size_t)count + 1) * sizeof *places), left = 0;
    if (sums == NULL || places == NULL) {
        PyMem_RawFree(sums);
        PyMem_RawFree(places);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++)
        places[i] = i;
    unsigned quarter = model->count / 4;
    add_trees(model, 0, quarter, rows, width, places, count, sums);
    for (uint32_t i = 0; i < count; i++)
        if (model->bias + (float)sums[i] * model->unit >= HOPELESS)
            places[left++] = i;
    add_trees(model, quarter, model->count, rows, width, places, left, sums);
    for (uint32_t i = 0; i < count; i++) {
        float raw = model->bias + (float)sums[i] * model->unit;
        float small = decay(raw < 0 ? -raw : raw);
        scores[i] = (raw < 0 ? small : 1) / (1 + small);
    }
    PyMem_RawFree(sums);
    PyMem_RawFree(places);
    return 1;
}

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

/* Where markup says so, and it is neither forum nor shop, comments of readers are no main text: all of them or none, by
 * what the trees say of them together. The less text is expected beside them the surer they have to be:
 * of a link that readers discuss the discussion is what the page is for. What holds a heading of the
 * page is no comment, whatever its name. `apart` takes them. */
#define APART 0.65
#define ALONE_LEAST 500 /* signs */
#define ALONE_MOST 1000

static int comments_apart(const struct blocks *page, const float *scores, uint8_t *apart) {
    double score = 0, length = 0, beside = 0;
    uint32_t top = 0, end = 0; /* the next heading of the page, and the end of the last comments */
    if (page->kind & (SAYS_FORUM | SAYS_PRODUCT)) /* reviews tell of a product */
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

/* What a reader wrote, and not who it was, when, or what else can be clicked there. */
static int is_comment(const struct blocks *page, const struct block *block) {
    const struct element *own = &page->elements[block->element];
    if (own->above & (IN_FORM | IN_NAV | IN_DIALOG) || own->tag == BUTTON || block->heading ||
        block->linked * 2 >= block->length)
        return 0;
    if (block->length <= 40 && (block->year || block->times || block->hints >> DATE_WORDS & 1))
        return 0;
    return own->tag == P || block->sentences || block->length >= 40;
}

#define REPEATED_BYTES 15 /* texts so long are taken once */

/* The blocks for which the F measure is expected to be highest, by their lengths: those with the
 * highest scores, as many as maximise sum(p w) / (sum(w) + b^2 sum over all(p w)). */
int choose(const struct model *model, const struct blocks *page, const float *scores, uint8_t *chosen) {
    struct candidate *candidates = PyMem_RawMalloc(((size_t)page->block_count + 1) * sizeof *candidates);
    uint32_t *best = PyMem_RawMalloc(((size_t)page->block_count + 1) * sizeof *best), count = 0;
    uint8_t *apart = PyMem_RawCalloc((size_t)page->block_count + 1, 1);
    if (candidates == NULL || best == NULL || apart == NULL) {
        PyMem_RawFree(candidates);
        PyMem_RawFree(best);
        PyMem_RawFree(apart);
        return 0;
    }
    int split = comments_apart(page, scores, apart);
    double all = 0, hit = 0, taken = 0, most = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < page->block_count; i++) {
        const struct block *block = &page->blocks[i];
        chosen[i] = split && apart[i] && is_comment(page, block) ? COMMENT_TEXT : LEFT_OUT;
        if (block->same == i) {
            best[i] = i;
            continue;
        }
        uint32_t *other = &best[block->same];
        int less = split && apart[i], its = split && apart[*other];
        if (its > less || (its == less && scores[i] > scores[*other]))
            *other = i;
    }
    for (uint32_t i = 0; i < page->block_count; i++) {
        const struct block *block = &page->blocks[i];
        if (block->repeats > 1 && block->end - block->begin >= REPEATED_BYTES && best[block->same] != i)
            continue;
        if (split && apart[i])
            continue;
        candidates[count++] = (struct candidate){scores[i], i};
        all += (double)scores[i] * block->length;
    }
    qsort(candidates, count, sizeof *candidates, by_score);
    for (uint32_t i = 0; i < count; i++) {
        double length = page->blocks[candidates[i].block].length;
        hit += (double)candidates[i].score * length;
        taken += length;
        double expected = hit / (taken + (double)model->recall * (double)model->recall * all);
        if (expected > most)
            most = expected, last = i + 1;
    }
    for (uint32_t i = 0; i < last; i++)
        chosen[candidates[i].block] = MAIN_TEXT;
    PyMem_RawFree(candidates);
    PyMem_RawFree(best);
    PyMem_RawFree(apart);
    return 1;
}
