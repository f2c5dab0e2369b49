/* Ends a parse that takes too much CPU or memory.
 *
 * Everything that a parse does needs memory. So a parse that is out of its bounds gets none: its
 * next allocations fail, and libxml2 gives up as it does when memory is short. */

#include "tree.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <time.h>

/* The clock is read once in this many pieces, because reading it is a system call. A usual page
 * takes some 2,000 pieces; a hostile page spends some 5 ms between two readings. */
#define STEP 512
/* A bounded parse may take this many pieces: some 30 MB, and the texts of its page. */
#define MOST 300000

/* The allocator that libxml2 used before. */
static void (*given_free)(void *);
static void *(*given_malloc)(size_t);
static void *(*given_realloc)(void *, size_t);
static char *(*given_strdup)(const char *);

#ifdef __GLIBC__ /* reads then need no function call; musl could not load such a module */
__attribute__((tls_model("initial-exec")))
#endif
static __thread struct {
    int runs, refused;
    unsigned pieces, most;
    int64_t until; /* CPU time of this thread, in ns */
} parse;

static int64_t cpu_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Return whether this thread's parse gets no more memory. */
static int refuse(void) {
    if (parse.runs && !parse.refused && ++parse.pieces % STEP == 0)
        parse.refused = parse.pieces > parse.most || cpu_time() > parse.until;
    return parse.runs && parse.refused;
}

static void *take(size_t size) {
    return refuse() ? NULL : given_malloc(size);
}

static void *resize(void *piece, size_t size) {
    return refuse() ? NULL : given_realloc(piece, size);
}

static char *duplicate(const char *text) {
    return refuse() ? NULL : given_strdup(text);
}

/* watch(path of lxml.etree): make its copy of libxml2 ask here before each allocation; return
 * whether this succeeded. */
static PyObject *watch(PyObject *self, PyObject *path) {
    (void)self;
    const char *name = PyUnicode_AsUTF8(path);
    if (name == NULL)
        return NULL;
    if (given_malloc != NULL)
        Py_RETURN_TRUE;
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    int (*get)(void *, void *, void *, void *) = NULL;
    int (*setup)(void (*)(void *), void *(*)(size_t), void *(*)(void *, size_t),
                 char *(*)(const char *)) = NULL;
    if (library != NULL) {
        *(void **)&get = dlsym(library, "xmlMemGet");
        *(void **)&setup = dlsym(library, "xmlMemSetup");
    }
    return PyBool_FromLong(
        get != NULL && setup != NULL &&
        get(&given_free, &given_malloc, &given_realloc, &given_strdup) == 0 &&
        setup(given_free, take, resize, duplicate) == 0);
}

/* bounded(function, seconds, bound, ...): call the function, which parses. Raises TimeoutError if
 * that takes more CPU than `seconds` (0: no limit), or, with `bound`, more pieces than MOST. */
static PyObject *bounded(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    (void)self;
    if (count < 3) {
        PyErr_SetString(PyExc_TypeError, "bounded(function, seconds, bound, ...)");
        return NULL;
    }
    double seconds = PyFloat_AsDouble(arguments[1]);
    if (seconds == -1.0 && PyErr_Occurred())
        return NULL;
    int bound = PyObject_IsTrue(arguments[2]);
    if (bound < 0)
        return NULL;
    parse.runs = 1;
    parse.refused = 0;
    parse.pieces = 0;
    parse.most = bound ? MOST : UINT_MAX;
    parse.until = seconds > 0 ? cpu_time() + (int64_t)(seconds * 1e9) : INT64_MAX;
    PyObject *result = PyObject_Vectorcall(arguments[0], arguments + 3, (size_t)count - 3, NULL);
    parse.runs = 0;
    if (parse.refused) {
        Py_CLEAR(result);
        PyErr_Clear();
        PyErr_SetString(PyExc_TimeoutError, "its parse was out of bounds");
    }
    return result;
}

static PyMethodDef methods[] = {
    {"watch", watch, METH_O, NULL},
    {"bounded", (PyCFunction)(void (*)(void))bounded, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int bounds_begin(PyObject *module) {
    return PyModule_AddFunctions(module, methods);
}
