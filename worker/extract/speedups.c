/* The visible text of a parsed page in one walk over libxml2's own nodes; see text.py, whose
 * results it equals, and compile.py.
 *
 * Only struct layouts of libxml2 are used, none of its functions: lxml carries its own copy. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <libxml/tree.h>
#include <stdint.h>
#include <string.h>

#include "etree_api.h"

enum kind { INLINE, BLOCK, HIDDEN, NOSCRIPT };

/* Names of elements to their kinds: open addressing, filled once. text.py's lists come as macros. */
#define SLOTS 512
static struct {
    const char *name;
    enum kind kind;
} slots[SLOTS];

/* In one tree equal names are one pointer, so that most need not be hashed again. */
#define NEAR 64
struct near {
    const xmlChar *name;
    enum kind kind;
};

struct text {
    char *data;
    size_t length, size;
    int spaced; /* the last character is a space, or there is none yet */
};

static unsigned slot_of(const char *name) {
    unsigned hash = 5381;
    while (*name)
        hash = hash * 33 ^ (unsigned char)*name++;
    return (hash ^ hash >> 9) % SLOTS;
}

static enum kind look_up(const char *name) {
    for (unsigned at = slot_of(name); slots[at].name; at = (at + 1) % SLOTS)
        if (strcmp(slots[at].name, name) == 0)
            return slots[at].kind;
    return INLINE;
}

static enum kind kind_of(struct near *near, const xmlChar *name) {
    struct near *found = &near[((uintptr_t)name >> 4) % NEAR];
    if (found->name != name) {
        found->name = name;
        found->kind = look_up((const char *)name);
    }
    return found->kind;
}

static void space(struct text *text) {
    if (!text->spaced) {
        text->data[text->length++] = ' ';
        text->spaced = 1;
    }
}

/* Make room for `more` characters and a space after them; false if there is no memory. */
static int reserve(struct text *text, size_t more) {
    if (text->size - text->length > more)
        return 1;
    size_t size = 2 * (text->size + more) + 1024;
    char *data = PyMem_RawRealloc(text->data, size);
    if (data == NULL)
        return 0;
    text->data = data;
    text->size = size;
    return 1;
}

#define EACH(byte) (0x0101010101010101u * (byte))
#define HIGH EACH(0x80)
#define LOW EACH(0x7f)

/* Append UTF-8, each run of white space as one space. */
static int append(struct text *text, const char *from) {
    size_t left = strlen(from);
    if (!reserve(text, left))
        return 0;
    char *to = text->data + text->length;
    int spaced = text->spaced;
    while (left) {
        if (left >= 8 && !(spaced && *from == ' ')) {
            /* Eight at a time where all white space is single blanks. In each byte of the masks
             * the high bit tells: a blank; a control character, or what begins U+00A0. */
            uint64_t eight;
            memcpy(&eight, from, 8);
            uint64_t no_blank = eight ^ EACH(0x20), no_lead = eight ^ EACH(0xc2);
            uint64_t blank = ~(((no_blank & LOW) + LOW) | no_blank) & HIGH;
            uint64_t odd = (~(((no_lead & LOW) + LOW) | no_lead) |
                            ~(((eight & LOW) + EACH(0x60)) | eight)) & HIGH;
            if (!odd && !(blank & blank << 8)) {
                memcpy(to, from, 8);
                to += 8, from += 8, left -= 8;
                spaced = to[-1] == ' ';
                continue;
            }
        }
        unsigned char one = (unsigned char)*from;
        size_t white = one == ' ' || one == '\n' || one == '\t' || one == '\r';
        if (one == 0xc2 && (unsigned char)from[1] == 0xa0)
            white = 2;
        if (!white)
            *to++ = (char)one;
        else if (!spaced)
            *to++ = ' ';
        spaced = white != 0;
        white += !white;
        from += white, left -= white;
    }
    text->spaced = spaced;
    text->length = (size_t)(to - text->data);
    return 1;
}

/* Append what is visible under `root`; false if there is no memory. Bounded in stack: trees of
 * hostile pages are deep. */
static int walk(struct text *text, const xmlNode *root, int noscript) {
    struct near near[NEAR] = {{NULL, INLINE}};
    const xmlNode *node = root;
    for (;;) {
        const xmlNode *child = NULL;
        if (node->type == XML_TEXT_NODE || node->type == XML_CDATA_SECTION_NODE) {
            if (node->content != NULL && !append(text, (const char *)node->content))
                return 0;
        } else if (node->type == XML_ELEMENT_NODE) {
            enum kind kind = kind_of(near, node->name);
            if (kind == BLOCK)
                space(text);
            if (kind == INLINE || kind == BLOCK || (kind == NOSCRIPT && noscript))
                child = node->children;
        }
        if (child != NULL) {
            node = child;
            continue;
        }
        while (node != root && node->next == NULL) {
            node = node->parent;
            if (kind_of(near, node->name) == BLOCK)
                space(text);
        }
        if (node == root)
            return 1;
        node = node->next;
    }
}

static PyObject *visible(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    (void)self;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "visible(element, noscript)");
        return NULL;
    }
    int noscript = PyObject_IsTrue(arguments[1]);
    if (noscript < 0)
        return NULL;
    struct LxmlElement *element = rootNodeOrRaise(arguments[0]);
    if (element == NULL)
        return NULL;
    struct text text = {NULL, 0, 0, 1};
    PyObject *result = NULL;
    if (!walk(&text, element->_c_node, noscript))
        PyErr_NoMemory();
    else
        result = PyUnicode_DecodeUTF8(text.length ? text.data : "",
                                      (Py_ssize_t)(text.length - (text.length && text.spaced)),
                                      "replace");
    PyMem_RawFree(text.data);
    Py_DECREF(element);
    return result;
}

static void note(const char *const *names, size_t count, enum kind kind) {
    for (size_t i = 0; i < count; i++) {
        unsigned at = slot_of(names[i]);
        while (slots[at].name)
            at = (at + 1) % SLOTS;
        slots[at].name = names[i];
        slots[at].kind = kind;
    }
}

static PyMethodDef methods[] = {
    {"visible", (PyCFunction)(void (*)(void))visible, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, MODULE, NULL, -1, methods, NULL, NULL, NULL, NULL,
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

PyMODINIT_FUNC INIT(void) {
    static const char *const blocks[] = {BLOCKS}, *const hidden[] = {INVISIBLE};
    _Static_assert(2 * (COUNT(blocks) + COUNT(hidden)) < SLOTS, "more slots are needed");
    note(blocks, COUNT(blocks), BLOCK);
    note(hidden, COUNT(hidden), HIDDEN);
    note((const char *const[]){"noscript"}, 1, NOSCRIPT);
    if (import_lxml__etree() < 0)
        return NULL;
    return PyModule_Create(&module);
}
