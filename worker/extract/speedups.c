/* Read the visible text and the links of a parsed page in one walk over libxml2's own nodes. The
 * results are the same as those of text.py and links.py. See also compile.py.
 *
 * lxml has its own copy of libxml2. This file uses only its struct layouts, and bounds.c uses
 * two of its functions. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <libxml/tree.h>
#include <libxml/xmlversion.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#include "etree_api.h"
#include "samples.h"
#include "tree.h"

#if LIBXML_VERSION != MADE_FOR
#error "the headers are of another libxml2 than the one that lxml runs on"
#endif

enum kind { INLINE, BLOCK, HIDDEN, NOSCRIPT };
enum role { UNREAD, ANCHOR, AREA, BASE, FRAME, IMAGE, LINK, META, TEMPLATE, TITLE };

/* The kinds of elements by name; open addressing, filled once. The lists of names are macros. */
#define SLOTS 512
static struct {
    const char *name;
    enum kind kind;
} slots[SLOTS];

/* Equal names in one tree are one pointer, so most names are looked up only once. */
#define NEAR 64
struct near {
    const xmlChar *name;
    enum kind kind;
    enum role role;
};

struct text {
    char *data;
    size_t length, size;
    int spaced; /* whether the last character is a space, or there is none yet */
    struct samples *samples; /* where to put samples of it; NULL: take none */
    struct label *labels;    /* texts of links, of which no samples are taken */
    size_t label_count, label_size, labelled; /* bytes of the text that are in labels */
    size_t marked;                            /* one past the last block whose end is marked */
};

struct label {
    size_t begin, end;
};

#define LONGEST_LABEL 160 /* a longer text says something by itself */

/* Return whether samples are still taken. They end after 2 * SAMPLED bytes, without the
 * text of short links that were closed. */
static int is_sampled(const struct text *text) {
    return text->samples != NULL && text->length - text->labelled < 2 * SAMPLED;
}

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

static enum role role_of(const char *name) {
    static const struct {
        const char *name;
        enum role role;
    } read[] = {{"a", ANCHOR},     {"area", AREA}, {"base", BASE}, {"frame", FRAME},
                {"iframe", FRAME}, {"img", IMAGE}, {"link", LINK}, {"meta", META},
                {"template", TEMPLATE}, {"title", TITLE}};
    for (size_t i = 0; i < sizeof(read) / sizeof *read; i++)
        if (strcmp(name, read[i].name) == 0)
            return read[i].role;
    return UNREAD;
}

static const struct near *nature(struct near *near, const xmlChar *name) {
    struct near *found = &near[((uintptr_t)name >> 4) % NEAR];
    if (found->name != name) {
        found->name = name;
        found->kind = look_up((const char *)name);
        found->role = role_of((const char *)name);
    }
    return found;
}

/* Note that the text from `begin` on belongs to a link; false if there is no memory. */
static int note_label(struct text *text, size_t begin) {
    if (text->length <= begin || text->length - begin > LONGEST_LABEL)
        return 1;
    if (text->label_count == text->label_size) {
        size_t size = 2 * text->label_size + 64;
        struct label *labels = PyMem_RawRealloc(text->labels, size * sizeof *labels);
        if (labels == NULL)
            return 0;
        text->labels = labels;
        text->label_size = size;
    }
    text->labels[text->label_count++] = (struct label){begin, text->length};
    text->labelled += text->length - begin;
    return 1;
}

/* End a block with a line feed while samples are taken, otherwise with a space. A later step
 * makes the line feeds spaces. */
static void space(struct text *text) {
    int marks = is_sampled(text);
    if (!text->spaced) {
        text->data[text->length++] = marks ? '\n' : ' ';
        text->spaced = 1;
    } else if (text->length && marks) {
        text->data[text->length - 1] = '\n';
    }
    if (marks)
        text->marked = text->length;
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

/* Append UTF-8; each run of white space becomes one space. */
static int append(struct text *text, const char *from) {
    size_t left = strlen(from);
    if (!reserve(text, left))
        return 0;
    char *to = text->data + text->length;
    int spaced = text->spaced;
    while (left) {
        if (left >= 8 && !(spaced && *from == ' ')) {
            /* Eight bytes at a time if their only white space is single blanks. The high bit of
             * each byte in `blank` marks a blank, and in `odd` a control character or the first
             * byte of U+00A0. */
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

/* Characters that the URL standard does not change in references; see schema/net/urls.py. */
enum { PATH = 1, QUERY = 2, LABEL = 4, FIRST = 8, LOWER = 16 };
static unsigned char classes[256];

static const char *past(const char *at, int class) {
    while (classes[(unsigned char)*at] & class)
        at++;
    return at;
}

/* What is put before a plain reference: nothing, or the first bytes of the base. */
enum plain { ODD, ABSOLUTE, OF_ORIGIN, OF_FOLDER, OF_PATH };

static enum plain plain(const char *reference, size_t *length) {
    const char *at = reference;
    enum plain found = OF_PATH;
    if (*at == '/') {
        if (at[1] == '/')
            return ODD;
        found = OF_ORIGIN;
        at = past(at, PATH);
    } else if (strncmp(at, "http://", 7) == 0 || strncmp(at, "https://", 8) == 0) {
        found = ABSOLUTE;
        const char *label = at + (at[4] == 's' ? 8 : 7);
        int dots = 0;
        while (at = past(label, LABEL), at != label && *at == '.')
            label = at + 1, dots++;
        if (!dots || at - label < 2 || past(label, LOWER) != at || *at != '/')
            return ODD;
        at = past(at, PATH);
    } else if (classes[(unsigned char)*at] & FIRST) {
        found = OF_FOLDER;
        at = past(at, PATH);
    } else if (*at != '?') {
        return ODD;
    }
    if (*at == '?')
        at = past(at + 1, QUERY);
    *length = (size_t)(at - reference);
    if ((*at != '\0' && *at != '#') || strstr(reference, "/.") != NULL)
        return ODD;
    return found;
}

/* The last link that is still open, and where its text begins in that of the page. */
struct anchor {
    const xmlNode *node;
    const char *alt; /* of its first image that has one */
    size_t begin;
    Py_ssize_t place;
};

/* The references of a page. Python resolves the `urls` at the places in `odd`; these are
 * references as written, or elements that may be links. Python also reads the elements in
 * `others`. `kinds` has the kind of each link's text; NULL if it is not needed. `words` has
 * texts by place. */
struct links {
    PyObject *urls, *rels, *odd, *others, *words;
    char *kinds;
    struct anchor anchor;
    const char *base, *agent;
    size_t starts[OF_PATH + 1];
    Py_ssize_t most;
    struct LxmlDocument *document;
    int given_up; /* the page has a base or too many links, so Python reads it */
};

/* Python resolves longer URLs. */
#define LONGEST 2000
/* A page with more elements than this in `others` keeps no more frames: Python reads only a few
 * of these documents. */
#define MOST_FRAMES 1000

static xmlAttr *attribute_of(const xmlNode *node, const char *name) {
    xmlAttr *attribute = node->properties;
    while (attribute != NULL &&
           (attribute->ns != NULL || strcmp((const char *)attribute->name, name) != 0))
        attribute = attribute->next;
    return attribute;
}

/* Return an attribute's value if it is in one piece, as it nearly always is, and NULL if it is in
 * several. Return "" without the attribute. */
static const char *content_of(const xmlAttr *attribute) {
    const xmlNode *text = attribute == NULL ? NULL : attribute->children;
    if (text == NULL)
        return "";
    return text->next == NULL && text->type == XML_TEXT_NODE ? (const char *)text->content : NULL;
}

/* Return whether a value contains an ASCII word in any case; `word` is in lower case. True if
 * that is hard to tell. */
static int may_contain(const char *value, const char *word) {
    size_t length = strlen(word);
    if (value == NULL)
        return 1;
    for (const char *at = value; *at; at++) {
        if ((unsigned char)*at >= 0x80)
            return 1;
        size_t same = 0;
        while (same < length && Py_TOLOWER((unsigned char)at[same]) == word[same])
            same++;
        if (same == length)
            return 1;
    }
    return 0;
}

/* Append `item` to a list and release it; false with an exception set. */
static int add(PyObject *list, PyObject *item) {
    int added = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return added;
}

static int add_odd(struct links *links, PyObject *item) {
    return add(links->odd, PyLong_FromSsize_t(PyList_GET_SIZE(links->urls))) &&
           add(links->urls, item);
}

/* Append the target of an attribute and the rel beside it, unless the target is within the page. */
static int add_link(struct links *links, const xmlNode *node, const char *name) {
    xmlAttr *attribute = attribute_of(node, name);
    const xmlNode *text = attribute == NULL ? NULL : attribute->children;
    if (text == NULL || text->content == NULL || *text->content == '\0' || *text->content == '#')
        return 1;
    const char *reference = content_of(attribute);
    size_t length = 0;
    enum plain found = reference == NULL || links->base == NULL ? ODD : plain(reference, &length);
    size_t start = links->starts[found];
    if (found == ODD || start + length > LONGEST) {
        PyObject *value = reference == NULL
                              ? attributeValue((xmlNode *)node, attribute)
                              : PyUnicode_FromString(reference);
        if (!add_odd(links, value))
            return 0;
    } else {
        PyObject *url = PyUnicode_New((Py_ssize_t)(start + length), 127);
        if (url == NULL)
            return 0;
        memcpy(PyUnicode_1BYTE_DATA(url), links->base, start);
        memcpy(PyUnicode_1BYTE_DATA(url) + start, reference, length);
        if (!add(links->urls, url))
            return 0;
    }
    xmlAttr *rel = *name == 'h' ? attribute_of(node, "rel") : NULL;
    return add(links->rels,
               rel == NULL ? Py_NewRef(Py_None) : attributeValue((xmlNode *)node, rel));
}

static PyObject *element_of(const struct links *links, const xmlNode *node) {
    return (PyObject *)elementFactory(links->document, (xmlNode *)node);
}

/* The same as NONE, OTHER, WORD and MAX_TEXT in schema/net/action_texts.py. */
enum { NO_TEXT, OTHER_TEXT, WORD_TEXT };
#define LONGEST_TEXT 64

/* Hashes of known texts, 0 for an empty slot; open addressing. */
#define KNOWN (1u << 15)
static uint32_t known[KNOWN];
static unsigned learnt;

/* Bits for the first four letters of known texts: they exclude most other texts quickly. */
#define BEGINNING 4
#define BEGINNINGS (1u << 16)
static unsigned char beginnings[BEGINNINGS / 8];

static unsigned known_at(uint32_t number) {
    unsigned at = (number ^ number >> 15) % KNOWN;
    while (known[at] && known[at] != number)
        at = (at + 1) % KNOWN;
    return at;
}

/* The letter for each ASCII character: a small letter or a digit; 0 for characters that only
 * join parts. */
static unsigned char worth[128];

/* Return a hash of a text that ignores case and the characters between its parts. Return 0 if
 * the text does not begin like a known text, unless `new`. */
static uint32_t number_of(const char *text, size_t length, int new) {
    const unsigned char *at = (const unsigned char *)text, *end = at + length;
    uint32_t number = 2166136261u;
    int letters = 0;
    while (at < end) {
        Py_UCS4 letter = *at;
        if (letter < 0x80) {
            at++;
            letter = worth[letter];
        } else {
            size_t size = letter < 0xe0 ? 2 : letter < 0xf0 ? 3 : 4;
            if ((size_t)(end - at) < size)
                break;
            letter &= 0x7fu >> size;
            for (size_t i = 1; i < size; i++)
                letter = letter << 6 | (at[i] & 0x3f);
            at += size;
            letter = letter == 0xa0 || letter == 0x640 || letter >> 8 == 0x20
                         ? 0
                         : Py_UNICODE_TOLOWER(letter);
        }
        if (!letter)
            continue;
        number = (number ^ letter) * 16777619u;
        if (++letters == BEGINNING) {
            unsigned bit = (number ^ number >> 16) % BEGINNINGS;
            if (new)
                beginnings[bit / 8] |= (unsigned char)(1 << bit % 8);
            else if (!(beginnings[bit / 8] & 1 << bit % 8))
                return 0;
        }
    }
    return number ? number : 1;
}

/* learn(text, ...): add texts of links to the known ones. */
static PyObject *learn(PyObject *self, PyObject *const *texts, Py_ssize_t count) {
    (void)self;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t length;
        const char *text = PyUnicode_AsUTF8AndSize(texts[i], &length);
        if (text == NULL)
            return NULL;
        uint32_t number = number_of(text, (size_t)length, 1);
        unsigned at = known_at(number);
        if (known[at] == 0 && ++learnt > KNOWN / 4 * 3) {
            PyErr_SetString(PyExc_OverflowError, "more slots are needed");
            return NULL;
        }
        known[at] = number;
    }
    Py_RETURN_NONE;
}

/* Return the number of bytes of a character that may surround a text without belonging to it,
 * otherwise 0; the same as in schema/net/action_texts.py. */
static size_t around(const unsigned char *at, size_t left) {
    if (*at < 0x80)
        return !(Py_ISALNUM(*at));
    if (left >= 2 && (*at == 0xc2 || (*at == 0xc3 && (at[1] == 0x97 || at[1] == 0xb7))))
        return 2;
    if (left >= 3 && (*at == 0xe2 || *at == 0xee || (*at == 0xe3 && at[1] == 0x80) ||
                      (*at == 0xef && (at[1] <= 0xa3 || (at[1] == 0xb8 && at[2] <= 0x8f) ||
                                       (at[1] == 0xbb && at[2] == 0xbf) ||
                                       (at[1] == 0xbc && at[2] <= 0x8f)))))
        return 3;
    return left >= 4 && *at == 0xf0 && at[1] == 0x9f ? 4 : 0;
}

/* Remove the characters around a text. */
static const char *trim(const char *text, size_t *length) {
    const unsigned char *from = (const unsigned char *)text, *end = from + *length;
    size_t more;
    while (from < end && (more = around(from, (size_t)(end - from))) != 0)
        from += more;
    while (from < end) {
        const unsigned char *last = end - 1;
        while (last > from && (*last & 0xc0) == 0x80)
            last--;
        if (around(last, (size_t)(end - last)) != (size_t)(end - last))
            break;
        end = last;
    }
    *length = (size_t)(end - from);
    return (const char *)from;
}

/* Note a text of the open link if it is, or may be, a known word; false with an exception set. */
static int note_word(struct links *links, const char *said, size_t length) {
    char *kind = &links->kinds[links->anchor.place];
    if (*kind == WORD_TEXT)
        return 1;
    said = trim(said, &length);
    if (length == 0)
        return 1;
    uint32_t number = length > LONGEST_TEXT ? 0 : number_of(said, length, 0);
    if (number == 0 || !known[known_at(number)]) {
        size_t digits = 0;
        while (digits < length && Py_ISDIGIT(said[digits]))
            digits++;
        if (digits < length && length > 1) /* an x closes or deletes */
            *kind = OTHER_TEXT;
        return 1;
    }
    *kind = WORD_TEXT;
    PyObject *place = PyLong_FromSsize_t(links->anchor.place);
    PyObject *word = PyUnicode_DecodeUTF8(said, (Py_ssize_t)length, "replace");
    int kept = place != NULL && word != NULL && PyDict_SetItem(links->words, place, word) == 0;
    Py_XDECREF(place);
    Py_XDECREF(word);
    return kept;
}

/* Close the open link: note its text, and other texts that say what it does. */
static int close_anchor(struct links *links, const struct text *text) {
    const struct anchor *open = &links->anchor;
    const xmlAttr *at = open->node->properties;
    if (text->length > open->begin) {
        size_t length = text->length - open->begin;
        const char *said = text->data + open->begin;
        char line[LONGEST_TEXT + 3]; /* for readers, the end of a block is white space */
        if (length < sizeof line) {
            for (size_t i = 0; i < length; i++)
                line[i] = said[i] == '\n' ? ' ' : said[i];
            said = line;
        }
        if (!note_word(links, said, length))
            return 0;
    }
    if (open->alt != NULL && !note_word(links, open->alt, strlen(open->alt)))
        return 0;
    for (; at != NULL; at = at->next) {
        const char *name = (const char *)at->name, *said;
        if (at->ns == NULL && ((*name == 't' && strcmp(name, "title") == 0) ||
                               (*name == 'a' && strcmp(name, "aria-label") == 0)) &&
            (said = content_of(at)) != NULL && !note_word(links, said, strlen(said)))
            return 0;
    }
    return 1;
}

/* Read an element that has links, or that Python may have to read; false with an exception set. */
static int take(struct links *links, const xmlNode *node, enum role role) {
    const char *rel, *name, *pragma;
    switch (role) {
    case ANCHOR:
    case AREA:
        return add_link(links, node, "href");
    case FRAME:
        if (attribute_of(node, "srcdoc") != NULL && PyList_GET_SIZE(links->others) < MOST_FRAMES &&
            !add(links->others, element_of(links, node)))
            return 0;
        return add_link(links, node, "src");
    case LINK:
        rel = content_of(attribute_of(node, "rel"));
        if ((may_contain(rel, "next") || may_contain(rel, "prev")) &&
            !(add_odd(links, element_of(links, node)) && add(links->rels, Py_NewRef(Py_None))))
            return 0;
        return !may_contain(rel, "canonical") || add(links->others, element_of(links, node));
    case META:
        pragma = content_of(attribute_of(node, "http-equiv"));
        if (may_contain(pragma, "refresh") &&
            !(add_odd(links, element_of(links, node)) && add(links->rels, Py_NewRef(Py_None))))
            return 0;
        name = content_of(attribute_of(node, "name"));
        if (!may_contain(pragma, "content-language") && !may_contain(name, "robots") &&
            !may_contain(name, "tdm-") && !(*links->agent && may_contain(name, links->agent)))
            return 1;
        return add(links->others, element_of(links, node));
    case TITLE:
        return add(links->others, element_of(links, node));
    case BASE:
        links->given_up = 1;
        break;
    case IMAGE:
        if (links->anchor.alt == NULL || !*links->anchor.alt)
            links->anchor.alt = content_of(attribute_of(node, "alt"));
        break;
    case TEMPLATE:
    case UNREAD:
        break;
    }
    return 1;
}

/* Return whether an element's content belongs to no document because scripts copy it; see
 * links.py. */
static int is_inert(const xmlNode *node, enum role role) {
    return role == TEMPLATE && attribute_of(node, "shadowrootmode") == NULL;
}

/* Append what is visible under `root`, and its links unless `links` is NULL; false if there is
 * no memory, or with an exception set. It does not recurse, because trees of hostile pages are
 * deep. */
static int walk(struct text *text, struct links *links, const xmlNode *root, int noscript) {
    struct near near[NEAR] = {{NULL, INLINE, UNREAD}};
    const xmlNode *node = root, *hidden = NULL; /* nothing under this element is visible */
    const xmlNode *open = NULL;                 /* the link whose text is being read */
    const xmlNode *label = NULL;                /* the same for samples */
    size_t labelled = 0;                        /* where its text begins */
    for (;;) {
        const xmlNode *child = NULL;
        if (node->type == XML_TEXT_NODE || node->type == XML_CDATA_SECTION_NODE) {
            if (hidden == NULL && node->content != NULL &&
                !append(text, (const char *)node->content))
                return 0;
        } else if (node->type == XML_ELEMENT_NODE) {
            const struct near *found = nature(near, node->name);
            if (links != NULL && found->role != UNREAD && node->ns == NULL &&
                (found->role != IMAGE || open != NULL)) {
                int opens = links->kinds != NULL && found->role == ANCHOR;
                if (opens && open != NULL && !close_anchor(links, text))
                    return 0; /* unclosed links are inside each other */
                Py_ssize_t place = PyList_GET_SIZE(links->urls);
                if (!take(links, node, found->role))
                    return 0;
                if (opens) {
                    open = PyList_GET_SIZE(links->urls) > place ? node : NULL;
                    links->anchor = (struct anchor){open, NULL, text->length, place};
                }
                if (links->given_up || PyList_GET_SIZE(links->urls) > links->most) {
                    links->given_up = 1;
                    return 1;
                }
            }
            if (hidden == NULL) {
                if (found->kind == BLOCK)
                    space(text);
                else if (found->kind == HIDDEN || (found->kind == NOSCRIPT && !noscript))
                    hidden = node;
                if (text->samples != NULL && hidden == NULL) {
                    if (found->role == IMAGE) {
                        samples_image(text->samples, content_of(attribute_of(node, "src")));
                    } else if (found->role == ANCHOR && is_sampled(text) &&
                               attribute_of(node, "href") != NULL) {
                        if (label != NULL && !note_label(text, labelled))
                            return 0;
                        label = node;
                        labelled = text->length;
                    }
                }
            }
            if (hidden == NULL || (links != NULL && !is_inert(node, found->role)))
                child = node->children;
        }
        if (child != NULL) {
            node = child;
            continue;
        }
        for (;;) {
            if (node == hidden)
                hidden = NULL;
            if (node == label) {
                label = NULL;
                if (!note_label(text, labelled))
                    return 0;
            }
            if (node == open) {
                open = NULL;
                if (!close_anchor(links, text))
                    return 0;
            }
            if (node == root)
                return 1;
            if (node->next != NULL)
                break;
            node = node->parent;
            if (hidden == NULL && nature(near, node->name)->kind == BLOCK)
                space(text);
        }
        node = node->next;
    }
}

/* Walk from the root of a tree, or from an element in it. What follows </html> is under more
 * roots beside the first, and only its text is read. */
static int walk_all(struct text *text, struct links *links, const xmlNode *root, int noscript) {
    int well = walk(text, links, root, noscript);
    if (root->parent != NULL && root->parent->type != XML_ELEMENT_NODE)
        while (well && (root = root->next) != NULL)
            well = walk(text, NULL, root, noscript);
    if (!well && !PyErr_Occurred())
        PyErr_NoMemory();
    return well;
}

typedef unsigned char sixteen __attribute__((vector_size(16)));

static void blank_line_feeds(char *text, size_t length) {
    size_t at = 0;
    for (; at + sizeof(sixteen) <= length; at += sizeof(sixteen)) {
        sixteen bytes;
        memcpy(&bytes, text + at, sizeof bytes);
        bytes ^= (sixteen)(bytes == '\n') & ('\n' ^ ' ');
        memcpy(text + at, &bytes, sizeof bytes);
    }
    for (; at < length; at++)
        if (text[at] == '\n')
            text[at] = ' ';
}

/* Return samples as bytes. They begin with three numbers: the bytes that one sample stands for,
 * as a power of 2; the number of images; and the number of blocks with figures. The tags follow,
 * four bytes each: of images, of the text, and two for each of these blocks. NULL with an
 * exception set. */
static PyObject *as_samples(const struct text *text, const char *url) {
    const char *path = url == NULL || strlen(url) < 8 ? NULL : strchr(url + 8, '/');
    struct samples *samples = text->samples;
    char own[2 * SAMPLED + 1]; /* the text outside links */
    size_t length = 0, from = 0;
    for (size_t i = 0; i <= text->label_count && length < 2 * SAMPLED; i++) {
        size_t end = i < text->label_count ? text->labels[i].begin : text->length;
        size_t more = end > from ? Py_MIN(end - from, 2 * SAMPLED - length) : 0;
        if (more)
            memcpy(own + length, text->data + from, more);
        length += more;
        if (i < text->label_count)
            from = text->labels[i].end;
    }
    if (length > SAMPLED) { /* its beginning and its end, since its own text may come last */
        memmove(own + SAMPLED - SAMPLED_END, own + length - SAMPLED_END, SAMPLED_END);
        own[SAMPLED - SAMPLED_END - 1] = '\n';
        length = SAMPLED;
    }
    if (path != NULL) {
        length = without_echo(own, length, path);
        samples_own(samples, path);
    }
    samples_take(samples, own, length);
    blank_line_feeds(text->data, text->marked);
    PyObject *result = PyBytes_FromStringAndSize(
        NULL, (Py_ssize_t)(SAMPLES_HEAD + 4 * (samples->image_count + samples->count) +
                           sizeof *samples->figures * samples->figures_count));
    if (result == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(result);
    *to++ = (char)samples->shift, *to++ = (char)samples->image_count;
    *to++ = (char)samples->figures_count;
    memcpy(to, samples->images, 4 * samples->image_count);
    to += 4 * samples->image_count;
    for (unsigned i = 0; i < SAMPLE_SLOTS; i++)
        if (samples->slots[i]) {
            memcpy(to, samples->slots + i, 4);
            to += 4;
        }
    memcpy(to, samples->figures, sizeof *samples->figures * samples->figures_count);
    return result;
}

static PyObject *as_text(const struct text *text) {
    return PyUnicode_DecodeUTF8(text->length ? text->data : "",
                                (Py_ssize_t)(text->length - (text->length && text->spaced)),
                                "replace");
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
    struct text text = {.spaced = 1};
    int well = walk_all(&text, NULL, element->_c_node, noscript);
    PyObject *result = well ? as_text(&text) : NULL;
    PyMem_RawFree(text.data);
    PyMem_RawFree(text.labels);
    Py_DECREF(element);
    return result;
}

/* sampled(element, noscript, url): return what is visible, and samples of it. */
static PyObject *sampled(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *given, *result = NULL;
    const char *url;
    int noscript;
    if (!PyArg_ParseTuple(arguments, "Ops", &given, &noscript, &url))
        return NULL;
    struct LxmlElement *element = rootNodeOrRaise(given);
    if (element == NULL)
        return NULL;
    struct samples samples = {0};
    struct text text = {.spaced = 1, .samples = &samples};
    if (walk_all(&text, NULL, element->_c_node, noscript)) {
        PyObject *found = as_samples(&text, url);
        PyObject *words = found == NULL ? NULL : as_text(&text);
        if (words != NULL)
            result = PyTuple_Pack(2, words, found);
        Py_XDECREF(words);
        Py_XDECREF(found);
    }
    PyMem_RawFree(text.data);
    PyMem_RawFree(text.labels);
    Py_DECREF(element);
    return result;
}

/* sample(text, url): return samples of UTF-8 in which line feeds separate blocks. */
static PyObject *sample(PyObject *self, PyObject *arguments) {
    (void)self;
    const char *data, *url;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(arguments, "y#s", &data, &length, &url))
        return NULL;
    char *copy = PyMem_RawMalloc((size_t)length + 1); /* the given bytes may be shared and must not change */
    if (copy == NULL)
        return PyErr_NoMemory();
    memcpy(copy, data, (size_t)length);
    struct samples samples = {0};
    struct text text = {.data = copy, .length = (size_t)length};
    text.samples = &samples;
    PyObject *result = as_samples(&text, url);
    PyMem_RawFree(copy);
    return result;
}

/* Return the number of slots of a table, which is a bytearray with a power of 2 as its length; 0
 * with an exception set. */
static size_t slots_of(const Py_buffer *table) {
    size_t slots = (size_t)table->len / sizeof(uint32_t);
    if (slots >= 4 && !(slots & (slots - 1)) && !table->readonly)
        return slots;
    PyErr_SetString(PyExc_ValueError, "no table");
    return 0;
}

/* How many images and bytes of text are new, and how many bytes were looked at. */
struct found {
    unsigned images, blocks; /* blocks: short ones, kept beside the samples */
    size_t fresh, text;
};

#define ENOUGH 6 /* this many pieces of text show how much of it is new */

/* Fill in what `novel` returns for the samples at `data`; false with an exception set. */
static int find(const char *data, Py_ssize_t length, uint64_t salt, const Py_buffer *table,
                unsigned shift, struct found *found) {
    size_t slots = slots_of(table), count = 0, figures = 0;
    uint32_t tags[MOST_SAMPLES + MOST_IMAGES];
    if (!slots)
        return 0;
    if (length >= SAMPLES_HEAD) {
        figures = (unsigned char)data[2] * sizeof(struct figures) / 4;
        count = (size_t)(length - SAMPLES_HEAD) / 4;
        count -= figures < count ? figures : count;
    }
    if (count > sizeof tags / sizeof *tags) {
        PyErr_SetString(PyExc_ValueError, "no samples");
        return 0;
    }
    memcpy(tags, data + SAMPLES_HEAD, 4 * count);
    size_t images = count ? (unsigned char)data[1] : 0;
    images = images < count ? images : count;
    unsigned own = count ? (unsigned char)data[0] & 31 : 0, looked;
    shift = shift < 31 ? shift : 31;
    while (shift > own && (count - images) >> (shift - own) < ENOUGH)
        shift--;
    shift = shift > own ? shift : own;
    unsigned level = shift > LEAST_SHIFT ? shift - LEAST_SHIFT : 0;
    found->images = tags_new(tags, images, salt, table->buf, slots, 0, &looked, &found->blocks);
    found->images += found->blocks; /* tags of images have no levels */
    found->fresh = (size_t)tags_new(tags + images, count - images, salt, table->buf, slots, level,
                                    &looked, &found->blocks)
                   << shift;
    found->text = (size_t)looked << shift;
    return 1;
}

/* novel(samples, salt, table, shift): return how many bytes of text are not in the table yet,
 * how many were looked at, how many images are new, and how many short blocks. A page with more
 * samples is looked at as if it had this `shift`, if enough samples are left then. */
static PyObject *novel(PyObject *self, PyObject *arguments) {
    (void)self;
    const char *data;
    Py_ssize_t length;
    unsigned long long salt;
    unsigned shift;
    Py_buffer table;
    if (!PyArg_ParseTuple(arguments, "y#Kw*I", &data, &length, &salt, &table, &shift))
        return NULL;
    PyObject *result = NULL;
    struct found found;
    if (find(data, length, salt, &table, shift, &found))
        result = Py_BuildValue("nnII", found.fresh, found.text, found.images, found.blocks);
    PyBuffer_Release(&table);
    return result;
}

/* Return the places of those of `count` strings that are not in the table under `salt`, as a
 * list; with `keep` they are added. `string` returns a new reference. NULL with an exception
 * set. */
static PyObject *unmet_places(PyObject *(*string)(PyObject *, Py_ssize_t), PyObject *strings,
                              Py_ssize_t count, uint64_t salt, const Py_buffer *table,
                              size_t slots, int keep) {
    PyObject *result = PyList_New(0);
    for (Py_ssize_t i = 0; result != NULL && i < count; i += NEAR) {
        uint64_t tags[NEAR];
        Py_ssize_t some = Py_MIN(count - i, NEAR);
        for (Py_ssize_t j = 0; result != NULL && j < some; j++) {
            Py_ssize_t length;
            PyObject *text = string(strings, i + j);
            const char *data = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, &length);
            if (data == NULL) {
                Py_CLEAR(result);
            } else {
                tags[j] = string_hash(data, (size_t)length, salt);
                tag_expected(tags[j], table->buf, slots);
            }
            Py_XDECREF(text);
        }
        for (Py_ssize_t j = 0; result != NULL && j < some; j++)
            if (!tag_known(tags[j], table->buf, slots, keep) &&
                !add(result, PyLong_FromSsize_t(i + j)))
                Py_CLEAR(result);
    }
    return result;
}

static PyObject *item_of(PyObject *list, Py_ssize_t place) {
    return Py_NewRef(PyList_GET_ITEM(list, place));
}

/* Return the `url` of an item. The offset of the field in its type is looked up once. */
static PyObject *url_of(PyObject *list, Py_ssize_t place) {
    static PyObject *name;
    static PyTypeObject *type; /* a reference is kept, so no other type gets its address */
    static Py_ssize_t offset;
    PyObject *item = PyList_GET_ITEM(list, place);
    if (Py_TYPE(item) == type) {
        PyObject *url = *(PyObject **)((char *)item + offset);
        if (url != NULL)
            return Py_NewRef(url);
    }
    if (name == NULL && (name = PyUnicode_InternFromString("url")) == NULL)
        return NULL;
    PyObject *found = type == NULL ? PyObject_GetAttr((PyObject *)Py_TYPE(item), name) : NULL;
    if (found != NULL && Py_TYPE(found) == &PyMemberDescr_Type &&
        ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX) {
        type = (PyTypeObject *)Py_NewRef(Py_TYPE(item));
        offset = ((PyMemberDescrObject *)found)->d_member->offset;
    }
    Py_XDECREF(found);
    PyErr_Clear();
    return PyObject_GetAttr(item, name);
}

/* unmet(strings, salt, table, keep): return the places of the strings that are not in the table;
 * with `keep` they are added. */
static PyObject *unmet(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *strings, *result = NULL;
    unsigned long long salt;
    Py_buffer table;
    int keep;
    if (!PyArg_ParseTuple(arguments, "O!Kw*p", &PyList_Type, &strings, &salt, &table, &keep))
        return NULL;
    size_t slots = slots_of(&table);
    if (slots)
        result = unmet_places(item_of, strings, PyList_GET_SIZE(strings), salt, &table, slots, keep);
    PyBuffer_Release(&table);
    return result;
}

/* unmet_links(links, salt, table): the same for the `url` of each link, always with `keep`. */
static PyObject *unmet_links(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *links, *result = NULL;
    unsigned long long salt;
    Py_buffer table;
    if (!PyArg_ParseTuple(arguments, "O!Kw*", &PyList_Type, &links, &salt, &table))
        return NULL;
    size_t slots = slots_of(&table);
    if (slots)
        result = unmet_places(url_of, links, PyList_GET_SIZE(links), salt, &table, slots, 1);
    PyBuffer_Release(&table);
    return result;
}

/* Return whether the new part alone shows that a page is new; the same as in novelty.py. */
static int is_much(const struct found *found) {
    size_t step = found->text >> 6 > 8 ? found->text >> 6 : 8;
    return found->images || (found->fresh >= 32 && 4 * found->fresh >= found->text) ||
           (found->fresh >= 120 && found->fresh >= 2 * step);
}

/* Return whether none of the links at these places, or of all links, has a query; -1 with an
 * exception set. */
static int none_asks(PyObject *links, PyObject *places) {
    int none = 1;
    Py_ssize_t count = PyList_GET_SIZE(places != NULL ? places : links);
    for (Py_ssize_t i = 0; none > 0 && i < count; i++) {
        PyObject *url =
            url_of(links, places ? PyLong_AsSsize_t(PyList_GET_ITEM(places, i)) : i);
        const char *text = url == NULL ? NULL : PyUnicode_AsUTF8(url);
        none = text == NULL ? -1 : strchr(text, '?') == NULL;
        Py_XDECREF(url);
    }
    return none;
}

/* passed(url, links, salt, urls): add `url` to `urls`. Return None if it was there already,
 * otherwise whether no link has a query. */
static PyObject *passed(PyObject *self, PyObject *arguments) {
    (void)self;
    const char *url;
    Py_ssize_t length;
    PyObject *links, *result = NULL;
    unsigned long long salt;
    Py_buffer urls;
    if (!PyArg_ParseTuple(arguments, "s#O!Kw*", &url, &length, &PyList_Type, &links, &salt, &urls))
        return NULL;
    size_t slots = slots_of(&urls);
    if (slots && tag_known(string_hash(url, (size_t)length, salt), urls.buf, slots, 1)) {
        result = Py_NewRef(Py_None);
    } else if (slots) {
        int none = none_asks(links, NULL);
        result = none < 0 ? NULL : PyBool_FromLong(none);
    }
    PyBuffer_Release(&urls);
    return result;
}

/* glance(url, samples, links, salts, pieces, urls, shift): answer in one call what is asked
 * about most pages. Return None if `urls` already has `url` under the first of the three salts;
 * nothing else is looked at then. Return True if much of the text is new, and no new link has a
 * query. Otherwise return what `novel` finds in `pieces` under the second salt, and the places
 * that `unmet_links` returns under the third. */
static PyObject *glance(PyObject *self, PyObject *arguments) {
    (void)self;
    const char *url, *samples;
    Py_ssize_t length, sampled;
    PyObject *links, *result = NULL;
    unsigned long long page, text, link;
    Py_buffer pieces, urls;
    unsigned shift;
    if (!PyArg_ParseTuple(arguments, "s#y#O!(KKK)w*w*I", &url, &length, &samples, &sampled,
                          &PyList_Type, &links, &page, &text, &link, &pieces, &urls, &shift))
        return NULL;
    struct found found;
    size_t slots = slots_of(&urls);
    if (!slots) {
        /* an exception is set */
    } else if (tag_known(string_hash(url, (size_t)length, page), urls.buf, slots, 1)) {
        result = Py_NewRef(Py_None);
    } else if (find(samples, sampled, text, &pieces, shift, &found)) {
        PyObject *places =
            unmet_places(url_of, links, PyList_GET_SIZE(links), link, &urls, slots, 1);
        int told = places == NULL ? -1 : is_much(&found) ? none_asks(links, places) : 0;
        if (told == 0)
            result = Py_BuildValue("nnIIO", found.fresh, found.text, found.images, found.blocks, places);
        else if (told > 0)
            result = Py_NewRef(Py_True);
        Py_XDECREF(places);
    }
    PyBuffer_Release(&pieces);
    PyBuffer_Release(&urls);
    return result;
}

/* Set how much of a canonical base goes before each kind of plain reference. */
static void cut(struct links *links, PyObject *base) {
    if (!PyUnicode_IS_COMPACT_ASCII(base) || PyUnicode_GET_LENGTH(base) < 8)
        return;
    const char *text = (const char *)PyUnicode_1BYTE_DATA(base);
    const char *slash = strchr(text + 8, '/');
    if (slash == NULL)
        return;
    size_t path = strcspn(text, "?"), folder = path;
    while (text[folder - 1] != '/')
        folder--;
    links->starts[OF_ORIGIN] = (size_t)(slash - text);
    links->starts[OF_FOLDER] = folder;
    links->starts[OF_PATH] = path;
    links->base = text;
}

static PyObject *outline(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *given, *base, *result = NULL;
    struct links links = {0};
    int wanted = 0, with_samples = 1;
    if (!PyArg_ParseTuple(arguments, "OUsn|pp", &given, &base, &links.agent, &links.most, &wanted,
                          &with_samples))
        return NULL;
    struct LxmlElement *element = rootNodeOrRaise(given);
    if (element == NULL)
        return NULL;
    const char *url = PyUnicode_AsUTF8(base);
    if (url == NULL) {
        Py_DECREF(element);
        return NULL;
    }
    cut(&links, base);
    links.document = element->_doc;
    links.urls = PyList_New(0), links.rels = PyList_New(0);
    links.odd = PyList_New(0), links.others = PyList_New(0);
    if (wanted) {
        links.words = PyDict_New();
        links.kinds = PyMem_RawCalloc((size_t)links.most + 2, 1);
        if (links.words == NULL || links.kinds == NULL)
            wanted = -1;
    }
    struct samples samples = {0};
    struct text text = {.spaced = 1, .samples = with_samples ? &samples : NULL};
    if (links.urls != NULL && links.rels != NULL && links.odd != NULL && links.others != NULL &&
        wanted >= 0 && walk_all(&text, &links, element->_c_node, 0)) {
        PyObject *found = links.given_up  ? NULL
                          : with_samples ? as_samples(&text, url)
                                         : PyBytes_FromStringAndSize(NULL, 0);
        PyObject *words = found == NULL ? NULL : as_text(&text);
        if (links.given_up)
            result = Py_NewRef(Py_None);
        else if (words != NULL && wanted)
            result = Py_BuildValue("OOOOO(y#O)O", words, links.urls, links.rels, links.odd,
                                   links.others, links.kinds, PyList_GET_SIZE(links.urls),
                                   links.words, found);
        else if (words != NULL)
            result = PyTuple_Pack(7, words, links.urls, links.rels, links.odd, links.others,
                                  Py_None, found);
        Py_XDECREF(words);
        Py_XDECREF(found);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    PyMem_RawFree(links.kinds);
    PyMem_RawFree(text.data);
    PyMem_RawFree(text.labels);
    Py_XDECREF(links.urls);
    Py_XDECREF(links.rels);
    Py_XDECREF(links.odd);
    Py_XDECREF(links.others);
    Py_XDECREF(links.words);
    Py_DECREF(element);
    return result;
}

const xmlNode *root_of(PyObject *given) {
    struct LxmlElement *element = rootNodeOrRaise(given);
    if (element == NULL)
        return NULL;
    const xmlNode *node = element->_c_node;
    Py_DECREF(element);
    return node;
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

static void allow(const char *characters, int class) {
    for (const char *at = characters; *at; at++)
        classes[(unsigned char)*at] |= (unsigned char)class;
}

static PyMethodDef methods[] = {
    {"visible", (PyCFunction)(void (*)(void))visible, METH_FASTCALL, NULL},
    {"outline", outline, METH_VARARGS, NULL},
    {"learn", (PyCFunction)(void (*)(void))learn, METH_FASTCALL, NULL},
    {"sampled", sampled, METH_VARARGS, NULL},
    {"sample", sample, METH_VARARGS, NULL},
    {"novel", novel, METH_VARARGS, NULL},
    {"unmet", unmet, METH_VARARGS, NULL},
    {"unmet_links", unmet_links, METH_VARARGS, NULL},
    {"passed", passed, METH_VARARGS, NULL},
    {"glance", glance, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, MODULE, NULL, -1, methods, NULL, NULL, NULL, NULL,
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

PyMODINIT_FUNC INIT(void) {
    static const char *const blocks[] = {BLOCKS}, *const hidden[] = {INVISIBLE};
    _Static_assert(2 * (COUNT(blocks) + COUNT(hidden)) < SLOTS, "more slots are needed");
    samples_begin();
    note(blocks, COUNT(blocks), BLOCK);
    note(hidden, COUNT(hidden), HIDDEN);
    note((const char *const[]){"noscript"}, 1, NOSCRIPT);
    allow("abcdefghijklmnopqrstuvwxyz", PATH | QUERY | LABEL | FIRST | LOWER);
    allow("ABCDEFGHIJKLMNOPQRSTUVWXYZ", PATH | QUERY | FIRST);
    allow("0123456789_-", PATH | QUERY | LABEL | FIRST);
    allow("~", PATH | QUERY | FIRST);
    allow(".", PATH | QUERY);
    allow("/", PATH);
    for (int one = 0; one < 128; one++)
        worth[one] = Py_ISALNUM(one) ? (unsigned char)Py_TOLOWER(one) : 0;
    allow("&=%+", QUERY);
    if (import_lxml__etree() < 0)
        return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && (main_begin(made) < 0 || bounds_begin(made) < 0))
        Py_CLEAR(made);
    return made;
}
