/* Functions that the C files of this module share. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <libxml/tree.h>

/* Return the node of an lxml element or tree, which the caller keeps alive; NULL with an
 * exception set. */
const xmlNode *root_of(PyObject *element);

/* Add the functions of main/ to the module; -1 with an exception set. */
int main_begin(PyObject *module);

/* Add the functions of bounds.c to the module; -1 with an exception set. */
int bounds_begin(PyObject *module);
