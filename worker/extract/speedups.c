/* The visible text of a parsed page, and the references of its links, each in one walk over
 * libxml2's own nodes; see text.py and links.py, whose results they equal, and compile.py.
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
    /* What follows </html> is under further roots, beside the first. */
    const xmlNode *root = element->_c_node;
    int well = walk(&text, root, noscript);
    if (root->parent != NULL && root->parent->type != XML_ELEMENT_NODE)
        while (well && (root = root->next) != NULL)
            well = walk(&text, root, noscript);
    if (!well)
        PyErr_NoMemory();
    else
        result = PyUnicode_DecodeUTF8(text.length ? text.data : "",
                                      (Py_ssize_t)(text.length - (text.length && text.spaced)),
                                      "replace");
    PyMem_RawFree(text.data);
    Py_DECREF(element);
    return result;
}

enum role { UNREAD, ANCHOR, BASE, OTHER };

static enum role role_of(const char *name) {
    static const char *const others[] = {"area", "frame", "iframe", "link", "meta", "title"};
    if (name[0] == 'a' && name[1] == '\0')
        return ANCHOR;
    if (strchr("abfilmt", name[0]) == NULL)
        return UNREAD;
    for (size_t i = 0; i < sizeof(others) / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0)
            return OTHER;
    return strcmp(name, "base") == 0 ? BASE : UNREAD;
}

/* The node after `node` in document order, NULL after the last one under `root`. */
static const xmlNode *following(const xmlNode *root, const xmlNode *node) {
    if (node->type == XML_ELEMENT_NODE && node->children != NULL)
        return node->children;
    while (node != root && node->next == NULL)
        node = node->parent;
    return node == root ? NULL : node->next;
}

static xmlAttr *attribute_of(const xmlNode *node, const char *name) {
    xmlAttr *attribute = node->properties;
    while (attribute != NULL &&
           (attribute->ns != NULL || strcmp((const char *)attribute->name, name) != 0))
        attribute = attribute->next;
    return attribute;
}

/* An attribute's value, as lxml gives it. */
static PyObject *value_of(const xmlNode *node, xmlAttr *attribute) {
    const xmlNode *text = attribute->children;
    if (text == NULL || text->next != NULL || text->type != XML_TEXT_NODE || text->content == NULL)
        return attributeValue((xmlNode *)node, attribute);
    const char *content = (const char *)text->content;
    return PyUnicode_DecodeUTF8(content, (Py_ssize_t)strlen(content), NULL);
}

/* Append to a list, and give away `item`; false with an exception set. */
static int add(PyObject *list, PyObject *item) {
    int added = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return added;
}

/* Append what a link refers to, and its rel; not if that is within the page. */
static int add_link(PyObject *texts, PyObject *rels, const xmlNode *node) {
    xmlAttr *href = attribute_of(node, "href"), *rel = attribute_of(node, "rel");
    const xmlNode *text = href == NULL ? NULL : href->children;
    if (text == NULL || text->content == NULL || *text->content == '\0' || *text->content == '#')
        return 1;
    return add(texts, value_of(node, href)) &&
           add(rels, rel == NULL ? Py_NewRef(Py_None) : value_of(node, rel));
}

static PyObject *references(PyObject *self, PyObject *given) {
    (void)self;
    struct LxmlElement *element = rootNodeOrRaise(given);
    if (element == NULL)
        return NULL;
    PyObject *texts = PyList_New(0), *rels = PyList_New(0);
    PyObject *others = PyList_New(0), *places = PyList_New(0), *result = NULL;
    int well = texts != NULL && rels != NULL && others != NULL && places != NULL;
    const xmlNode *root = element->_c_node, *node = root;
    for (; well && node != NULL; node = following(root, node)) {
        if (node->type != XML_ELEMENT_NODE || node->ns != NULL)
            continue;
        enum role role = role_of((const char *)node->name);
        if (role == BASE)
            break;
        if (role == ANCHOR)
            well = add_link(texts, rels, node);
        else if (role == OTHER)
            well = add(others, (PyObject *)elementFactory(element->_doc, (xmlNode *)node)) &&
                   add(places, PyLong_FromSsize_t(PyList_GET_SIZE(texts)));
    }
    if (well)
        result = node == NULL ? PyTuple_Pack(4, texts, rels, others, places) : Py_NewRef(Py_None);
    Py_XDECREF(texts);
    Py_XDECREF(rels);
    Py_XDECREF(others);
    Py_XDECREF(places);
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
    {"references", references, METH_O, NULL},
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
