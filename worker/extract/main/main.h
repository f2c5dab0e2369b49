/* The main text of a page: blocks of a tree, what they look like, how likely each is main text, and
 * the document that is made of those that are chosen. The order of files is the order of steps:
 * blocks.c with words.c and said.c, alike.c, features.c, trees.c, choice.c, document.c; main.c has what Python calls. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <libxml/tree.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "eight bytes are read as a number, the first as the lowest");

/* Beyond these nothing of a page is read: they bound memory and time of hostile pages. */
#define MOST_ELEMENTS 65536
#define MOST_BLOCKS 16384
#define MOST_MARKS 65536
#define LONGEST_TITLE 300 /* bytes of it that are compared with blocks */

/* What an element is. Of tags that are read otherwise than others each has its own. */
enum tag {
    OTHER, A, ARTICLE, ASIDE, BLOCKQUOTE, BODY, BOLD, BR, BUTTON, CAPTION, CELL, CODE, CUSTOM, DD, DETAILS,
    DIALOG, DIV, DL, DT, EMPHASIS, FIELDSET, FIGURE, FOOTER, FORM, H1, H2, H3, H4, H5, H6, HEAD, HEADCELL,
    HEADER, HR, IMG, INPUT, LABEL, LI, LIST, MAIN, META, NAV, OL, P, PRE, ROW, SCRIPT, SECTION, SKIPPED,
    SUMMARY, TABLE, TIME, TITLE, NOSCRIPT, TAGS
};

/* Bits of `above`: what an element lies in, itself included. */
enum {
    IN_ARTICLE = 1 << 0, IN_MAIN = 1 << 1, IN_NAV = 1 << 2, IN_ASIDE = 1 << 3, IN_HEADER = 1 << 4,
    IN_FOOTER = 1 << 5, IN_FORM = 1 << 6, IN_LIST = 1 << 7, IN_TABLE = 1 << 8, IN_QUOTE = 1 << 9,
    IN_FIGURE = 1 << 10, IN_DL = 1 << 11, IN_SECTION = 1 << 12, IN_DETAILS = 1 << 13, IN_DIALOG = 1 << 14,
    IN_HIDDEN = 1 << 15, IN_BODY_OF_ARTICLE = 1 << 16, IN_PRE = 1 << 17, IN_LI = 1 << 18,
    IN_COMMENT = 1 << 19
};
#define ABOVES 20
#define HOLDS_COMMENTS (1u << 20) /* of the element alone, and no feature: what readers wrote of the page */

/* An element that begins and ends blocks. */
struct element {
    const xmlNode *node;
    uint32_t parent;      /* the root is its own */
    uint32_t wider;       /* the nearest above it that has more blocks */
    uint32_t first, last; /* its blocks: the last is behind them */
    uint32_t groups, groups_above; /* groups of class words: its own; of all that it lies in, too */
    uint32_t above;
    uint32_t like;     /* elements of one parent that have the same tag and class share it */
    uint32_t siblings; /* how many are like it, itself included */
    uint32_t form;     /* elements share it that are made alike, and lie in such */
    uint32_t length, linked, in_paragraphs, good, headings; /* sums of lengths over its blocks */
    uint16_t depth;
    uint8_t tag, heading; /* heading: the level of the one it lies in, 0 for none */
};

/* Text between the ends of elements that end text. Lengths are signs that are no white space, those
 * of scripts that write a word in one to three signs counting as many more. */
struct block {
    size_t begin, end;
    uint64_t hash;
    uint32_t element;
    uint32_t length, linked, bold, digits, capitals;
    uint32_t sentences, commas, links, images, inputs, times;
    uint32_t groups; /* of inline elements in it */
    uint32_t hints;  /* groups of words of its text, if that is short */
    uint32_t first_mark, last_mark;
    uint32_t repeats, same; /* how often the page has this text, and where first */
    uint8_t ends;     /* the kind of its last sign, see `enum sign` */
    uint8_t breaks, symbols, year, good, titled, heading;
    uint8_t in_body, in_description; /* shares of it that markup repeats */
};

enum sign { LETTER = 0, SENTENCE_END, COMMA, COLON, BRACKET, OTHER_SIGN };

/* Where inline markup begins or ends in the text. */
struct mark {
    const xmlNode *node;
    uint32_t at; /* bytes behind the begin of its block */
    uint8_t tag, closes;
};

/* Texts that markup repeats: a set of numbers of three words in a row. */
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
    char title[LONGEST_TITLE + 1]; /* folded */
    size_t title_length;
    unsigned kind; /* bits: what markup says the page is */
    unsigned offers; /* how many things JSON-LD says are for sale */
    unsigned scripts;
    struct said said[2]; /* of bodies, of descriptions */
};

enum { SAYS_ARTICLE = 1, SAYS_PRODUCT = 2, SAYS_SITE = 4, SAYS_LIST = 8, SAYS_FORUM = 16, SAYS_FAQ = 32, SAYS_ONE_PRODUCT = 64 };

/* words.c */
void words_begin(void);
/* Groups of the words of a class or an id. */
uint32_t class_groups(const char *value);
/* Whether a class or an id names an element that holds comments of readers. */
int names_comments(const char *value);
/* Groups of words of a short text. */
uint32_t text_groups(const char *text, size_t length);
extern const char *const class_group_names[], *const text_group_names[];
#define CLASS_GROUPS 24
#define TEXT_GROUPS 12
#define DATE_WORDS 10 /* which of these are of dates */

/* said.c */
#define TOO_SHORT 252 /* fewer than three words */
#define NOT_SAID 255  /* markup repeats nothing */
/* Take over what says what a page is without being shown. */
void note_unseen(struct blocks *page, const xmlNode *node, uint8_t tag);
/* When all is read. */
void note_end(struct blocks *page);
/* Which kinds of page a type of markup tells of. */
unsigned kind_of(const char *value);
/* How much of a text is repeated: 0 to 250, TOO_SHORT or NOT_SAID. */
uint32_t said_share(const struct said *said, const char *text, size_t length);

/* blocks.c */
void blocks_begin(void);
/* Read the blocks under `root`; false if there is no memory. */
int blocks_read(struct blocks *page, const xmlNode *root, int noscript);
void blocks_free(struct blocks *page);
/* An attribute's value, NULL without it. */
const char *value_of(const xmlNode *node, const char *name);
/* Fold to small letters and digits, parts joined by one space. */
size_t fold(char *to, size_t room, const char *from, size_t length);

/* alike.c */
/* Of elements of one form, over the blocks that lie in them alone (kin); or of those of one parent and
 * one form, over all their blocks. */
struct alike_sum {
    uint64_t key;
    uint32_t members, blocks, length, linked, good, repeated;
    uint32_t first, last; /* blocks: the last is behind them */
};

struct alike {
    uint32_t *slots, count;
    size_t size;
    struct alike_sum *sums;
    uint32_t *kin, *group; /* of each element the place of its sums */
    uint32_t *record;      /* the nearest element it lies in that is one of several records; 0: none */
};

/* Tell what is alike; false if there is no memory. */
int alike_read(struct alike *alike, const struct blocks *page);
void alike_free(struct alike *alike);

/* main.c */
/* Where to look first for a key in a table of `size` places, a power of two. Who makes a page cannot
 * foresee it, and so not have many keys at one place. */
size_t slot_for(uint64_t key, size_t size);

/* features.c */
#define MOST_FEATURES 384
/* How many there are, and their names. */
unsigned features_names(const char **names, int *numbers);
/* Features of each block, a row for each; false if there is no memory. */
int features_of(struct blocks *page, uint8_t *rows, unsigned width);

/* trees.c */
struct model;
struct model *model_read(const uint8_t *data, size_t length, unsigned features, const char **problem);
void model_free(struct model *model);
/* The probability of each of `count` rows to be main text; false if there is no memory. */
int model_scores(const struct model *model, const uint8_t *rows, unsigned width, uint32_t count, float *scores);
/* How many times as much recall counts as precision. */
float model_recall(const struct model *model);

/* choice.c */
enum choice { LEFT_OUT, MAIN_TEXT, COMMENT_TEXT };
/* Tell of each block what it is; false if there is no memory. Scores of tables become those of the whole,
 * and of very long texts those of their first blocks at least. */
int choose(const struct model *model, const struct blocks *page, float *scores, uint8_t *chosen);

/* document.c */
/* Whether a table holds data and is not the layout of a page: it has several rows of short cells. */
int holds_data(const struct blocks *page, uint32_t table);
struct writer {
    char *data;
    size_t length, size;
    int failed;
};
/* The blocks of one choice as text; as Markdown where `resolve`, a function of Python, makes URLs of
 * references. It failed if there was no memory, or with an exception set. */
void document_write(struct writer *out, const struct blocks *page, const uint8_t *chosen, enum choice which,
                    PyObject *resolve);

/* spans.c */
/* main_spans(text, main): where a main text stands in all text, as schema/text/spans.py reads it. */
PyObject *main_spans(PyObject *self, PyObject *arguments);
