/* The functions for Python; see __init__.py. */

#include "main.h"

#include <time.h>

#include "../tree.h"

static const char *names[2 * MOST_FEATURES];
static int numbers[2 * MOST_FEATURES];
static unsigned width; /* the number of features */
static uint32_t digest; /* of their names */

/* If a page shows less text than this, its `noscript` elements are read too. */
#define FEW_SIGNS 600

static void forget(PyObject *capsule) { model_free(PyCapsule_GetPointer(capsule, "model")); }

/* model(bytes): load a trained model. Raises ValueError if it was made for other features. */
static PyObject *model(PyObject *self, PyObject *given) {
    (void)self;
    char *data;
    Py_ssize_t length;
    const char *problem = "";
    if (PyBytes_AsStringAndSize(given, &data, &length) < 0)
        return NULL;
    uint32_t made_for = 0;
    if (length >= 8)
        memcpy(&made_for, data + 4, 4);
    struct model *made = made_for == digest ? model_read((const uint8_t *)data, (size_t)length, width, &problem) : NULL;
    if (made == NULL) {
        PyErr_SetString(PyExc_ValueError, made_for == digest ? problem : "the model was made for other features");
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(made, "model", forget);
    if (capsule == NULL)
        model_free(made);
    return capsule;
}

/* features(): return the names of the features, in order, and the digest of the names. */
static PyObject *features(PyObject *self, PyObject *nothing) {
    (void)self, (void)nothing;
    PyObject *list = PyList_New(width);
    for (unsigned i = 0; list != NULL && i < width; i++) {
        PyObject *name = numbers[i] == -1 && strncmp(names[i], "neighbour", 9) != 0
                             ? PyUnicode_FromString(names[i])
                             : PyUnicode_FromFormat("%s %d", names[i], numbers[i]);
        if (name == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, name);
    }
    return list == NULL ? NULL : Py_BuildValue("NI", list, digest);
}

static int64_t cpu_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The state of one page. `until` is a limit on the thread's CPU clock, in ns; 0: none. It is checked
 * between the steps, which are short because only so much of a page is read. */
struct reading {
    struct blocks page;
    uint8_t *rows, *chosen;
    float *scores;
    int64_t until;
    int late;
};

static int in_time(struct reading *reading) {
    reading->late = reading->until && cpu_time() > reading->until;
    return !reading->late;
}

static void close_reading(struct reading *reading) {
    blocks_free(&reading->page);
    PyMem_RawFree(reading->rows);
    PyMem_RawFree(reading->chosen);
    PyMem_RawFree(reading->scores);
}

/* Read the page, score its blocks and choose; false if there is no memory or no time left. */
static int read_page(struct reading *reading, const xmlNode *root, const struct model *model) {
    struct blocks *page = &reading->page;
    if (!blocks_read(page, root, 0) || !in_time(reading))
        return 0;
    if (page->elements[0].length < FEW_SIGNS) {
        struct blocks more = {0};
        if (!blocks_read(&more, root, 1)) {
            blocks_free(&more);
            return 0;
        }
        if (more.elements[0].length > page->elements[0].length) {
            struct blocks less = *page;
            *page = more, more = less;
        }
        blocks_free(&more);
    }
    size_t count = (size_t)page->block_count + 1;
    reading->rows = PyMem_RawMalloc(count * width);
    reading->scores = PyMem_RawCalloc(count, sizeof *reading->scores);
    reading->chosen = PyMem_RawCalloc(count, 1);
    if (reading->rows == NULL || reading->scores == NULL || reading->chosen == NULL ||
        !features_of(page, reading->rows, width) || !in_time(reading))
        return 0;
    if (model == NULL)
        return 1;
    return model_scores(model, reading->rows, width, page->block_count, reading->scores) && in_time(reading) &&
           choose(model, page, reading->scores, reading->chosen) && in_time(reading);
}

static int model_of(PyObject *given, const struct model **model) {
    *model = given == Py_None ? NULL : PyCapsule_GetPointer(given, "model");
    return *model != NULL || given == Py_None;
}

/* main_text(element, model, resolve, comments, seconds=0): return the main text, or the comments of
 * readers. The result is Markdown if `resolve` is given, which makes URLs of references. Raises
 * TimeoutError if it takes more than `seconds` of CPU, unless that is 0. */
static PyObject *main_text(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *element, *given, *resolve, *result = NULL;
    const struct model *model;
    int comments;
    double seconds = 0;
    if (!PyArg_ParseTuple(arguments, "OOOp|d", &element, &given, &resolve, &comments, &seconds) ||
        !model_of(given, &model))
        return NULL;
    const xmlNode *root = root_of(element);
    if (root == NULL)
        return NULL;
    struct reading reading = {.until = seconds > 0 ? cpu_time() + (int64_t)(seconds * 1e9) : 0};
    struct writer out = {NULL, 0, 0, 0};
    if (read_page(&reading, root, model)) {
        document_write(&out, &reading.page, reading.chosen, comments ? COMMENT_TEXT : MAIN_TEXT,
                       resolve == Py_None ? NULL : resolve);
        if (!out.failed)
            result = PyUnicode_DecodeUTF8(out.length ? out.data : "", (Py_ssize_t)out.length, "replace");
    }
    if (reading.late)
        PyErr_SetString(PyExc_TimeoutError, "main text took too long");
    else if (result == NULL && !PyErr_Occurred())
        PyErr_NoMemory();
    PyMem_RawFree(out.data);
    close_reading(&reading);
    return result;
}

/* words(): return what the numbers of the features "above", "near", "around" and "hint" mean. */
static PyObject *words(PyObject *self, PyObject *nothing) {
    (void)self, (void)nothing;
    static const char *const aboves[ABOVES] = {
        "article", "main", "nav", "aside", "header", "footer", "form", "list", "table", "blockquote",
        "figure", "dl", "section", "details", "dialog", "hidden", "articleBody", "pre", "li", "Comment"};
    const struct {
        const char *const *names;
        unsigned count;
    } each[] = {{aboves, ABOVES}, {class_group_names, CLASS_GROUPS}, {text_group_names, TEXT_GROUPS}};
    PyObject *lists = PyTuple_New(3);
    for (unsigned i = 0; lists != NULL && i < 3; i++) {
        PyObject *list = PyTuple_New(each[i].count);
        for (unsigned j = 0; list != NULL && j < each[i].count; j++) {
            PyObject *name = PyUnicode_FromString(each[i].names[j]);
            if (name == NULL)
                Py_CLEAR(list);
            else
                PyTuple_SET_ITEM(list, j, name);
        }
        if (list == NULL)
            Py_CLEAR(lists);
        else
            PyTuple_SET_ITEM(lists, i, list);
    }
    return lists;
}

/* Return, for each element that blocks are in, its place among all elements of the tree. Both are in
 * document order. */
static uint32_t *places_of(const struct blocks *page, const xmlNode *root) {
    uint32_t *places = PyMem_RawCalloc((size_t)page->element_count + 1, sizeof *places), place = 0, next = 1;
    const xmlNode *node = root, *last = root;
    while (places != NULL && node != NULL) {
        if (node->type == XML_ELEMENT_NODE) {
            for (; next < page->element_count && page->elements[next].node == node; next++)
                places[next] = place;
            place++;
        }
        if (node->type == XML_ELEMENT_NODE && node->children != NULL) {
            node = node->children;
            continue;
        }
        while (node != NULL && node != last && node->next == NULL)
            node = node->parent;
        if (node == last) /* what follows </html> is beside it */
            last = node = root->parent != NULL && root->parent->type != XML_ELEMENT_NODE ? node->next : NULL;
        else if (node != NULL)
            node = node->next;
    }
    return places;
}

/* blocks(element, model): return a row for each block, and the features of all blocks. A row has the text,
 * the tag, the length, the first block with the same text, the score, one of `enum choice`, and the
 * element's place among those of the tree. */
static PyObject *blocks(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *element, *given, *result = NULL;
    const struct model *model;
    if (!PyArg_ParseTuple(arguments, "OO", &element, &given) || !model_of(given, &model))
        return NULL;
    const xmlNode *root = root_of(element);
    if (root == NULL)
        return NULL;
    struct reading reading = {0};
    if (read_page(&reading, root, model)) {
        const struct blocks *page = &reading.page;
        uint32_t *places = places_of(page, root);
        PyObject *list = places == NULL ? PyErr_NoMemory() : PyList_New(page->block_count);
        for (uint32_t i = 0; list != NULL && i < page->block_count; i++) {
            const struct block *block = &page->blocks[i];
            const struct element *own = &page->elements[block->element];
            PyObject *text = PyUnicode_DecodeUTF8(page->text + block->begin, (Py_ssize_t)(block->end - block->begin), "replace");
            PyObject *row = text == NULL ? NULL
                            : Py_BuildValue("NsIIdiI", text, (const char *)own->node->name, block->length, block->same,
                                            (double)reading.scores[i], (int)reading.chosen[i],
                                            places[block->element]);
            if (row == NULL)
                Py_CLEAR(list);
            else
                PyList_SET_ITEM(list, i, row);
        }
        PyMem_RawFree(places);
        if (list != NULL)
            result = Py_BuildValue("Ny#", list, (const char *)reading.rows, (Py_ssize_t)page->block_count * width);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    close_reading(&reading);
    return result;
}

static PyMethodDef methods[] = {
    {"main_model", model, METH_O, NULL},
    {"main_features", features, METH_NOARGS, NULL},
    {"main_words", words, METH_NOARGS, NULL},
    {"main_text", main_text, METH_VARARGS, NULL},
    {"main_blocks", blocks, METH_VARARGS, NULL},
    {"main_spans", main_spans, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static uint64_t secret[2];

size_t slot_for(uint64_t key, size_t size) {
    key = (key ^ secret[0]) * (secret[1] | 1);
    key = (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
    return key >> 20 & (size - 1);
}

/* An attacker cannot predict Python's hash of a string, so it serves as the secret. */
static int make_secret(void) {
    const char *const names[] = {"greencrawl", "main"};
    for (int i = 0; i < 2; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        Py_hash_t hash = name == NULL ? -1 : PyObject_Hash(name);
        Py_XDECREF(name);
        if (hash == -1)
            return -1;
        secret[i] = (uint64_t)hash;
    }
    return 0;
}

int main_begin(PyObject *module) {
    if (make_secret() < 0)
        return -1;
    words_begin();
    blocks_begin();
    width = features_names(names, numbers);
    if (width == 0 || width > MOST_FEATURES) {
        PyErr_Format(PyExc_SystemError, "%u features", width);
        return -1;
    }
    digest = 2166136261u;
    for (unsigned i = 0; i < width; i++) {
        for (const char *at = names[i]; *at; at++)
            digest = (digest ^ (unsigned char)*at) * 16777619u;
        digest = (digest ^ (unsigned)(numbers[i] + 16)) * 16777619u;
    }
    return PyModule_AddFunctions(module, methods);
}
