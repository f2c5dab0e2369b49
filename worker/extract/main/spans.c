/* Find where a main text is within all text of its page. schema/text/spans.py describes the format. */

#include "main.h"

#define NEEDLE 32             /* this many first bytes of a piece are sought */
#define MOST_IN_VAIN (4 << 20) /* bytes searched without success; after that the search ends */

struct bytes {
    char *data;
    size_t length, size;
    int failed;
};

static void put(struct bytes *to, const char *from, size_t length) {
    if (to->size - to->length < length) {
        size_t size = 2 * (to->size + length) + 256;
        char *data = PyMem_RawRealloc(to->data, size);
        if (data == NULL) {
            to->failed = 1;
            return;
        }
        to->data = data, to->size = size;
    }
    memcpy(to->data + to->length, from, length);
    to->length += length;
}

static void put_number(struct bytes *to, size_t number) {
    char digits[10];
    size_t count = 0;
    for (; number > 127; number >>= 7)
        digits[count++] = (char)(number | 128);
    digits[count++] = (char)number;
    put(to, digits, count);
}

/* Return where in `text` the beginning of `sought` is; NULL if it is not found. The beginning ends before a
 * line break or a tab, since the page's whole text has neither. If that text has another character for a
 * space, only what is before the space is searched. */
static const char *find(const char *text, size_t left, const char *sought, size_t length, size_t *in_vain) {
    size_t most = length < NEEDLE ? length : NEEDLE, bytes = 0, word = 0;
    while (bytes < most && sought[bytes] != '\n' && sought[bytes] != '\t') {
        if (sought[bytes] == ' ' && word == 0)
            word = bytes;
        bytes++;
    }
    if (bytes == 0 || *in_vain > MOST_IN_VAIN)
        return NULL;
    const char *found = memmem(text, left, sought, bytes);
    if (found == NULL && word)
        found = memmem(text, left, sought, word);
    *in_vain += found == NULL ? left : 0;
    return found;
}

/* Return how many bytes two texts have in common at their start. */
static size_t common(const char *one, size_t left, const char *other, size_t room) {
    size_t most = left < room ? left : room, at = 0;
    while (most - at >= 8 && memcmp(one + at, other + at, 8) == 0)
        at += 8;
    while (at < most && one[at] == other[at])
        at++;
    return at;
}

static size_t white(const char *at, size_t left) {
    size_t count = 0;
    while (count < left && (at[count] == ' ' || at[count] == '\n' || at[count] == '\t'))
        count++;
    return count;
}

static void put_piece(struct bytes *to, size_t passed, size_t length, const char *joint, size_t bytes) {
    static const char *const joints[] = {"\n\n", "\n", "\t"}; /* as in spans.py */
    unsigned which = 0;
    while (which < 3 && (strlen(joints[which]) != bytes || memcmp(joints[which], joint, bytes) != 0))
        which++;
    put_number(to, length << 2 | which);
    put_number(to, passed);
    if (which == 3) {
        put_number(to, bytes);
        put(to, joint, bytes);
    }
}

static void put_spans(struct bytes *to, const char *text, size_t left, const char *main, size_t length) {
    size_t in_vain = 0;
    put_number(to, left);
    while (length && !to->failed) {
        const char *found = find(text, left, main, length, &in_vain);
        size_t passed = found == NULL ? 0 : (size_t)(found - text), same = 0, joint = 0;
        if (found != NULL) {
            same = common(found, left - passed, main, length);
            text = found + same, left -= passed + same;
            main += same, length -= same;
        } else if (in_vain > MOST_IN_VAIN) {
            joint = length;
        } else {
            while (joint < length && main[joint] != '\n' && main[joint] != '\t')
                joint++;
        }
        joint += white(main + joint, length - joint);
        put_piece(to, passed, same, main, joint);
        main += joint, length -= joint;
    }
}

/* Get the bytes of a string, and return the object that owns them; NULL with an exception set. ASCII is
 * read in place; other strings are encoded, without a copy cached in the string. */
static PyObject *bytes_of(PyObject *string, const char **data, size_t *length) {
    if (PyUnicode_IS_COMPACT_ASCII(string)) {
        *data = (const char *)PyUnicode_1BYTE_DATA(string), *length = (size_t)PyUnicode_GET_LENGTH(string);
        return Py_NewRef(string);
    }
    PyObject *made = PyUnicode_AsUTF8String(string);
    if (made != NULL)
        *data = PyBytes_AS_STRING(made), *length = (size_t)PyBytes_GET_SIZE(made);
    return made;
}

PyObject *main_spans(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *text, *main, *result = NULL;
    if (!PyArg_ParseTuple(arguments, "UU", &text, &main))
        return NULL;
    const char *all = NULL, *chosen = NULL;
    size_t all_length = 0, length = 0;
    PyObject *one = bytes_of(text, &all, &all_length), *other = one == NULL ? NULL : bytes_of(main, &chosen, &length);
    if (other != NULL) {
        struct bytes made = {NULL, 0, 0, 0};
        put_spans(&made, all, all_length, chosen, length);
        result = made.failed ? PyErr_NoMemory() : PyBytes_FromStringAndSize(made.data, (Py_ssize_t)made.length);
        PyMem_RawFree(made.data);
    }
    Py_XDECREF(one);
    Py_XDECREF(other);
    return result;
}
