/* Boosted trees in packed tables.
 *
 * A model is little-endian. It has: "GCM2"; the digest of the features that it was made for (4 bytes); the
 * number of trees (2); how many steps of a leaf's value make 1 (4, a float); the bias (4, a float); how
 * many times as much recall counts as precision (4, a float). For each tree follow: the number n of its
 * nodes (1), the n nodes, and n + 1 values of leaves (2 each). A node is: the feature (2), the threshold
 * (1), the next place if the value is at most that (1), and the next place if it is more (1). A place is a
 * node, or 128 + a leaf. */

#include "main.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define HEAD_BYTES 22
#define NODE_BYTES 5
#define MOST_NODES 127 /* of a tree, which has one leaf more */
#define CHUNK 64 /* rows that go through a tree together */

/* A node comes before its children, and the leaves come last; `low` and `high` are places among all of
 * them. */
struct node {
    uint16_t feature;
    uint8_t threshold, low, high;
};

struct tree {
    uint32_t first, first_value;
    unsigned count; /* of nodes; there is one leaf more */
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

float model_recall(const struct model *model) { return model->recall; }

void model_free(struct model *model) {
    if (model == NULL)
        return;
    PyMem_RawFree(model->trees);
    PyMem_RawFree(model->nodes);
    PyMem_RawFree(model->values);
    PyMem_RawFree(model);
}

/* Put one tree of `count` nodes in its place; false if it is not a tree. */
static int lay_out(struct model *model, const struct tree *tree, const uint8_t *nodes, unsigned features) {
    const uint8_t *leaves = nodes + NODE_BYTES * (size_t)tree->count;
    uint8_t from[MOST_NODES + 1] = {0};
    unsigned laid = tree->count ? 1 : 0, leaf_count = 0;
    int16_t *values = model->values + tree->first_value;
    if (tree->count == 0)
        values[leaf_count++] = (int16_t)two_bytes(leaves);
    for (unsigned i = 0; i < laid; i++) {
        const uint8_t *given = nodes + NODE_BYTES * (size_t)from[i];
        uint8_t to[2];
        for (int side = 0; side < 2; side++) {
            unsigned next = given[3 + side], leaf = next & 127u;
            if (next & 128) {
                if (leaf > tree->count || leaf_count > tree->count)
                    return 0;
                to[side] = (uint8_t)(tree->count + leaf_count);
                values[leaf_count++] = (int16_t)two_bytes(leaves + 2 * leaf);
            } else {
                if (next >= tree->count || laid >= tree->count)
                    return 0;
                from[laid] = (uint8_t)next;
                to[side] = (uint8_t)laid++;
            }
        }
        if (two_bytes(given) >= features)
            return 0;
        model->nodes[tree->first + i] = (struct node){(uint16_t)two_bytes(given), given[2], to[0], to[1]};
    }
    return leaf_count == tree->count + 1;
}

struct model *model_read(const uint8_t *data, size_t length, unsigned features, const char **problem) {
    *problem = "it is no model";
    if (length < HEAD_BYTES || memcmp(data, "GCM2", 4) != 0)
        return NULL;
    struct model *model = PyMem_RawCalloc(1, sizeof *model);
    if (model == NULL)
        return NULL;
    model->count = two_bytes(data + 8);
    model->unit = 1.0f / a_float(data + 10);
    model->bias = a_float(data + 14);
    model->recall = a_float(data + 18);
    model->trees = PyMem_RawCalloc(model->count + 1, sizeof *model->trees);
    model->nodes = PyMem_RawCalloc(length, sizeof *model->nodes); /* more than needed */
    model->values = PyMem_RawCalloc(length, sizeof *model->values);
    int well = model->trees != NULL && model->nodes != NULL && model->values != NULL;
    size_t at = HEAD_BYTES;
    uint32_t laid = 0, valued = 0;
    for (unsigned i = 0; well && i < model->count; i++) {
        unsigned count = at < length ? data[at] : 255;
        size_t bytes = NODE_BYTES * (size_t)count + 2 * ((size_t)count + 1);
        well = count <= MOST_NODES && length - at - 1 >= bytes;
        if (!well)
            break;
        model->trees[i] = (struct tree){laid, valued, count};
        well = lay_out(model, &model->trees[i], data + at + 1, features);
        laid += count, valued += count + 1;
        at += 1 + bytes;
    }
    if (!well || at != length) {
        model_free(model);
        return NULL;
    }
    return model;
}

/* Return e to the power of -x, for x >= 0. It uses the series for x / 1024, and squares ten times. */
static float decay(float x) {
    if (x > 40)
        return 0;
    float part = x / 1024, power = 1 - part + part * part / 2;
    for (int i = 0; i < 10; i++)
        power *= power;
    return power;
}

typedef uint8_t sixteen __attribute__((vector_size(16)));

/* Return one bit for each byte; all bits of a byte are the same. */
static inline unsigned bits_of(sixteen bytes) {
#ifdef __SSE2__
    return (unsigned)_mm_movemask_epi8((__m128i)bytes);
#else
    uint64_t half[2];
    memcpy(half, &bytes, sizeof half);
    unsigned found = 0;
    for (int i = 0; i < 2; i++) /* byte n keeps its bit n, and the product adds all of them up in the highest byte */
        found |= (unsigned)((half[i] & 0x8040201008040201u) * 0x0101010101010101u >> 56) << 8 * i;
    return found;
#endif
}

/* Return which of the values, 16 times `sixteens`, are more than a threshold. */
static inline uint64_t above(const uint8_t *values, uint8_t threshold, unsigned sixteens) {
    uint64_t found = 0;
    for (unsigned i = 0; i < sixteens; i++) {
        sixteen some;
        memcpy(&some, values + 16 * i, sizeof some);
        found |= (uint64_t)bits_of((sixteen)(some > threshold)) << 16 * i;
    }
    return found;
}

/* Swap the bits of `one` at `lower` << `bits` with the bits of `other` at `lower`. */
static inline void swap(uint64_t *one, uint64_t *other, unsigned bits, uint64_t lower) {
    uint64_t different = ((*one >> bits) ^ *other) & lower;
    *other ^= different, *one ^= different << bits;
}

/* Transpose eight bytes of eight rows: byte n of each row goes to `to + n * CHUNK`. */
static void turn(uint8_t *to, const uint8_t *const *row, unsigned at) {
    uint64_t eight[8];
    for (int i = 0; i < 8; i++)
        memcpy(&eight[i], row[i] + at, 8);
    for (int i = 0; i < 4; i++)
        swap(&eight[i], &eight[i + 4], 32, 0x00000000ffffffffu);
    for (int i = 0; i < 8; i += i % 2 ? 3 : 1)
        swap(&eight[i], &eight[i + 2], 16, 0x0000ffff0000ffffu);
    for (int i = 0; i < 8; i += 2)
        swap(&eight[i], &eight[i + 1], 8, 0x00ff00ff00ff00ffu);
    for (int i = 0; i < 8; i++)
        memcpy(to + i * CHUNK, &eight[i], 8);
}

/* Add the values of the trees from `first` up to `last` to the sums of the rows at `places`. A chunk of
 * rows goes through a tree as a set of bits; each node splits the set. */
static void add_trees(const struct model *model, unsigned first, unsigned last, const uint8_t *rows, unsigned width,
                      const uint32_t *places, uint32_t count, int32_t *sums) {
    uint8_t turned[MOST_FEATURES][CHUNK]; /* the values of one feature side by side */
    uint64_t sets[2 * MOST_NODES + 1];
    for (uint32_t begin = 0; begin < count; begin += CHUNK) {
        unsigned some = count - begin < CHUNK ? count - begin : CHUNK, sixteens = (some + 15) / 16;
        for (unsigned j = 0; j < 16 * sixteens; j += 8) {
            const uint8_t *row[8];
            for (unsigned i = 0; i < 8; i++)
                row[i] = rows + (size_t)places[begin + (i + j < some ? i + j : 0)] * width;
            for (unsigned i = 0; i < width; i += 8) /* after the last row there is room for one more */
                turn(&turned[i][j], row, i);
        }
        int32_t said[CHUNK] = {0};
        sets[0] = ~(uint64_t)0 >> (CHUNK - some);
        for (unsigned t = first; t < last; t++) {
            const struct tree *tree = &model->trees[t];
            const struct node *node = model->nodes + tree->first;
            const int16_t *values = model->values + tree->first_value;
            for (unsigned i = 0; i < tree->count; i++, node++) {
                uint64_t more = above(turned[node->feature], node->threshold, sixteens);
                sets[node->low] = sets[i] & ~more;
                sets[node->high] = sets[i] & more;
            }
            for (unsigned i = 0; i <= tree->count; i++)
                for (uint64_t set = sets[tree->count + i]; set; set &= set - 1)
                    said[__builtin_ctzll(set)] += values[i];
        }
        for (unsigned j = 0; j < some; j++)
            sums[places[begin + j]] += said[j];
    }
}

/* A block with a lower score than this after a quarter of the trees is not scored further. */
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
