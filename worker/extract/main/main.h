/* The main text of a page: read its blocks, describe them by features, score them, choose, and write a
 * document. The files in the order of the steps are blocks.c (with words.c and said.c), alike.c,
 * features.c, trees.c, choice.c and document.c. main.c has the functions for Python. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <libxml/tree.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "eight bytes are read as a number, the first as the lowest");

/* No more of a page is read than this. These limits bound the memory and time for hostile pages. */
#define MOST_ELEMENTS 65536
#define MOST_BLOCKS 16384
#define MOST_MARKS 65536
#define LONGEST_TITLE 300 /* bytes of it that are compared with blocks */

/* What an element is. A tag has a value of its own if it is read differently. */
enum tag {
    OTHER, A, ARTICLE, ASIDE, BLOCKQUOTE, BODY, BOLD, BR, BUTTON, CAPTION, CELL, CODE, CUSTOM, DD, DETAILS,
    DIALOG, DIV, DL, DT, EMPHASIS, FIELDSET, FIGURE, FOOTER, FORM, H1, H2, H3, H4, H5, H6, HEAD, HEADCELL,
    HEADER, HR, IMG, INPUT, LABEL, LI, LIST, MAIN, META, NAV, OL, P, PRE, ROW, SCRIPT, SECTION, SKIPPED,
    SUMMARY, TABLE, TIME, TITLE, NOSCRIPT, TAGS
};

/* Bits of `above`: the kinds of elements that an element is in, including itself. */
enum {
    IN_ARTICLE = 1 << 0, IN_MAIN = 1 << 1, IN_NAV = 1 << 2, IN_ASIDE = 1 << 3, IN_HEADER = 1 << 4,
    IN_FOOTER = 1 << 5, IN_FORM = 1 << 6, IN_LIST = 1 << 7, IN_TABLE = 1 << 8, IN_QUOTE = 1 << 9,
    IN_FIGURE = 1 << 10, IN_DL = 1 << 11, IN_SECTION = 1 << 12, IN_DETAILS = 1 << 13, IN_DIALOG = 1 << 14,
    IN_HIDDEN = 1 << 15, IN_BODY_OF_ARTICLE = 1 << 16, IN_PRE = 1 << 17, IN_LI = 1 << 18,
    IN_COMMENT = 1 << 19
};
#define ABOVES 20
#define HOLDS_COMMENTS (1u << 20) /* it holds readers' comments; not passed on to elements in it, and no feature */

/* An element that begins and ends blocks. */
struct element {
    const xmlNode *node;
    uint32_t parent;      /* the root is its own parent */
    uint32_t wider;       /* the nearest ancestor that has more blocks */
    uint32_t first, last; /* its blocks; `last` is one past the end */
    uint32_t groups, groups_above; /* groups of class words: its own; its own and its ancestors' */
    uint32_t above;
    uint32_t like;     /* equal for elements of one parent with the same tag and class */
    uint32_t siblings; /* how many of these there are, including itself */
    uint32_t form;     /* equal for elements with the same tags and classes up to the root */
    uint32_t length, linked, in_paragraphs, good, headings; /* sums of lengths over its blocks */
    uint16_t depth;
    uint8_t tag, heading; /* heading: the level of the heading that it is in, or 0 */
};

/* A text between two elements that end text. Lengths count characters without white space. If a script
 * writes a word in one to three characters, each of them counts two or three times. */
struct block {
    size_t begin, end;
    uint64_t hash;
    uint32_t element;
    uint32_t length, linked, bold, digits, capitals;
    uint32_t sentences, commas, links, images, inputs, times;
    uint32_t groups; /* groups of class words of its inline elements */
    uint32_t hints;  /* groups of words of its text, if that is short */
    uint32_t first_mark, last_mark;
    uint32_t repeats, same; /* how often the page has this text, and the first block with it */
    uint8_t ends;     /* the kind of its last character, see `enum sign` */
    uint8_t breaks, symbols, year, good, titled, heading;
    uint8_t in_body, in_description; /* how much of it markup repeats, see said_share */
};

enum sign { LETTER = 0, SENTENCE_END, COMMA, COLON, BRACKET, OTHER_SIGN };

/* Inline markup that begins or ends in the text. */
struct mark {
    const xmlNode *node;
    uint32_t at; /* bytes from the start of its block */
    uint8_t tag, closes;
};

/* A set of shingles (three words in a row) from texts that markup repeats. */
struct said {
    uint32_t *slots, count;
};

struct blocks {
    char *text;
    size_t text_length, text_size;
    struct element *elements;
    uint32_t element_count, element_size;
    struct block *blocks;
    uint32_t block_count, block_size;
    struct mark *marks;
    uint32_t mark_count, mark_size;
    char title[LONGEST_TITLE + 1]; /* only small letters and digits, see fold */
    size_t title_length;
    unsigned kind; /* bits: what markup says that the page is */
    unsigned offers; /* how many offers JSON-LD names */
    unsigned scripts;
    struct said said[2]; /* of bodies, of descriptions */
};

enum { SAYS_ARTICLE = 1, SAYS_PRODUCT = 2, SAYS_SITE = 4, SAYS_LIST = 8, SAYS_FORUM = 16, SAYS_FAQ = 32, SAYS_ONE_PRODUCT = 64 };

/* words.c */
void words_begin(void);
/* Return the groups of the words of a class or an id. */
uint32_t class_groups(const char *value);
/* Return whether a class or an id names an element that holds comments of readers. */
int names_comments(const char *value);
/* Return the groups of the words of a short text. */
uint32_t text_groups(const char *text, size_t length);
extern const char *const class_group_names[], *const text_group_names[];
#define CLASS_GROUPS 24
#define TEXT_GROUPS 12
#define DATE_WORDS 10 /* the group for words of dates */

/* said.c */
#define TOO_SHORT 252 /* fewer than three words */
#define NOT_SAID 255  /* markup repeats nothing */
/* Take information about the page from an element that is not shown. */
void note_unseen(struct blocks *page, const xmlNode *node, uint8_t tag);
/* Call this after everything was read. */
void note_end(struct blocks *page);
/* Return the kinds of page that a type in markup names. */
unsigned kind_of(const char *value);
/* Return how much of a text markup repeats: 0 to 250, TOO_SHORT or NOT_SAID. */
uint32_t said_share(const struct said *said, const char *text, size_t length);

/* blocks.c */
void blocks_begin(void);
/* Read the blocks under `root`; false if there is no memory. */
int blocks_read(struct blocks *page, const xmlNode *root, int noscript);
void blocks_free(struct blocks *page);
/* Return an attribute's value; NULL if there is no such attribute. */
const char *value_of(const xmlNode *node, const char *name);
/* Reduce a text to small letters and digits, with one space between its parts. */
size_t fold(char *to, size_t room, const char *from, size_t length);

/* alike.c */
/* Sums over elements of one form. For `kin` they include only blocks directly in these elements; for
 * `group` the elements also have one parent, and all of their blocks count. */
struct alike_sum {
    uint64_t key;
    uint32_t members, blocks, length, linked, good, repeated;
    uint32_t first, last; /* blocks; `last` is one past the end */
};

struct alike {
    uint32_t *slots, count;
    size_t size;
    struct alike_sum *sums;
    uint32_t *kin, *group; /* for each element the place of its sums */
    uint32_t *record;      /* the nearest of several records that it is in; 0: none */
};

/* Find elements that are alike; false if there is no memory. */
int alike_read(struct alike *alike, const struct blocks *page);
void alike_free(struct alike *alike);

/* main.c */
/* Return the first place to look for a key in a table of `size` places, a power of two. The author of a
 * page cannot predict it, and so cannot put many keys in one place. */
size_t slot_for(uint64_t key, size_t size);

/* features.c */
#define MOST_FEATURES 384
/* Return the number of features, and their names. */
unsigned features_names(const char **names, int *numbers);
/* Write the features of each block, one row a block; false if there is no memory. */
int features_of(struct blocks *page, uint8_t *rows, unsigned width);

/* trees.c */
struct model;
struct model *model_read(const uint8_t *data, size_t length, unsigned features, const char **problem);
void model_free(struct model *model);
/* Compute for each of `count` rows the probability that it is main text; false if there is no memory. */
int model_scores(const struct model *model, const uint8_t *rows, unsigned width, uint32_t count, float *scores);
/* Return how many times as much recall counts as precision. */
float model_recall(const struct model *model);

/* choice.c */
enum choice { LEFT_OUT, MAIN_TEXT, COMMENT_TEXT };
/* Decide for each block what it is; false if there is no memory. In `scores` the cells of a table get the
 * score of the whole, and blocks of a very long text at least that of its first blocks. */
int choose(const struct model *model, const struct blocks *page, float *scores, uint8_t *chosen);

/* document.c */
/* Return whether a table holds data: it has several rows of short cells and is not the layout of the page. */
int holds_data(const struct blocks *page, uint32_t table);
struct writer {
    char *data;
    size_t length, size;
    int failed;
};
/* Write the blocks of one choice as text, or as Markdown if `resolve` is given, a Python function that
 * makes URLs of references. If `failed` is set, there was no memory, or an exception is set. */
void document_write(struct writer *out, const struct blocks *page, const uint8_t *chosen, enum choice which,
                    PyObject *resolve);

/* spans.c */
/* main_spans(text, main): describe where a main text is within all text, in the form that
 * schema/text/spans.py reads. */
PyObject *main_spans(PyObject *self, PyObject *arguments);
