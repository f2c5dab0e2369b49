/* Write the chosen blocks as a document: plain text with line breaks, or Markdown. */

#include "main.h"

static int room(struct writer *out, size_t more) {
    if (out->size - out->length > more)
        return 1;
    size_t size = 2 * (out->size + more) + 1024;
    char *data = PyMem_RawRealloc(out->data, size);
    if (data == NULL) {
        out->failed = 1;
        return 0;
    }
    out->data = data, out->size = size;
    return 1;
}

static void write_bytes(struct writer *out, const char *from, size_t length) {
    if (length && room(out, length)) {
        memcpy(out->data + out->length, from, length);
        out->length += length;
    }
}

static void write_text(struct writer *out, const char *text) { write_bytes(out, text, strlen(text)); }

/* Return the nearest element with one of two tags, from this element upwards; 0 if there is none. */
static uint32_t within(const struct blocks *page, uint32_t element, uint8_t tag, uint8_t other) {
    while (element && page->elements[element].tag != tag && page->elements[element].tag != other)
        element = page->elements[element].parent;
    return element;
}

/* The elements that a block is in. */
struct stand {
    uint32_t item, list, cell, row, table, quote, pre;
    unsigned deep; /* the number of lists that it is in */
};

#define LONGEST_CELL 300 /* cells of data have at most this many characters, on average */

int holds_data(const struct blocks *page, uint32_t table) {
    const struct element *own = &page->elements[table];
    uint32_t rows = 0, cells = 0;
    for (uint32_t i = table + 1; i < page->element_count && page->elements[i].first < own->last; i++) {
        uint8_t tag = page->elements[i].tag;
        if (page->elements[i].depth <= own->depth)
            break;
        if (tag == TABLE)
            return 0;
        rows += tag == ROW, cells += tag == CELL || tag == HEADCELL;
    }
    return rows >= 2 && cells >= 2 * rows && own->length / cells <= LONGEST_CELL && own->last - own->first <= 2 * cells;
}

#define KNOWN_TABLES 64

/* A cache of `holds_data`, by the place of the table modulo KNOWN_TABLES. */
struct tables {
    uint32_t table[KNOWN_TABLES];
    int data[KNOWN_TABLES];
};

static struct stand stand_of(const struct blocks *page, struct tables *tables, uint32_t element) {
    struct stand stand = {0};
    const struct element *own = &page->elements[element];
    if (own->above & IN_LI) {
        stand.item = within(page, element, LI, LI);
        stand.list = within(page, stand.item, LIST, OL);
        for (uint32_t at = stand.list; at; at = within(page, page->elements[at].parent, LIST, OL))
            stand.deep++;
    }
    if (own->above & IN_TABLE) {
        uint32_t table = within(page, element, TABLE, TABLE), slot = table % KNOWN_TABLES;
        if (tables->table[slot] != table) {
            tables->table[slot] = table;
            tables->data[slot] = holds_data(page, table);
        }
        stand.cell = within(page, element, CELL, HEADCELL);
        if (tables->data[slot] && stand.cell > table) {
            stand.table = table;
            stand.row = within(page, stand.cell, ROW, ROW);
        } else {
            stand.cell = 0;
        }
    }
    if (own->above & IN_QUOTE)
        stand.quote = within(page, element, BLOCKQUOTE, BLOCKQUOTE);
    if (own->above & IN_PRE)
        stand.pre = within(page, element, PRE, PRE);
    return stand;
}

static int escaped(char sign) { return sign != '\0' && strchr("\\`*_[]<", sign) != NULL; }

/* Return whether a character at the start of a line would begin something else in Markdown. */
static int begins(char sign) { return sign != '\0' && strchr("#>-+=~", sign) != NULL; }

#define OPEN_MARKS 8

/* Inline markup that is open, the innermost last. The marks from `shown` on are not written yet, because
 * no text has followed them. */
struct open {
    const struct mark *marks[OPEN_MARKS];
    unsigned count, shown;
};

static const char *fence_of(uint8_t tag) {
    return tag == BOLD ? "**" : tag == EMPHASIS ? "*" : tag == CODE ? "`" : "[";
}

static void show_open(struct writer *out, struct open *open) {
    for (; open->shown < open->count; open->shown++)
        write_text(out, fence_of(open->marks[open->shown]->tag));
}

static void write_target(struct writer *out, const xmlNode *node, PyObject *resolve) {
    const char *reference = value_of(node, "href");
    PyObject *url = PyObject_CallFunction(resolve, "s", reference == NULL ? "" : reference);
    const char *said = url == NULL ? NULL : PyUnicode_AsUTF8(url);
    if (said == NULL) {
        out->failed = 1;
    } else {
        write_text(out, "](");
        for (; *said; said++)
            if ((unsigned char)*said <= ' ' || *said == '(' || *said == ')' || *said == '<' || *said == '>') {
                char coded[4];
                PyOS_snprintf(coded, sizeof coded, "%%%02X", (unsigned char)*said);
                write_text(out, coded);
            } else {
                write_bytes(out, said, 1);
            }
        write_text(out, ")");
    }
    Py_XDECREF(url);
}

/* Close the innermost mark directly behind the last word, before a space that follows it. */
static void close_one(struct writer *out, struct open *open, PyObject *resolve) {
    const struct mark *mark = open->marks[--open->count];
    if (open->shown <= open->count)
        return;
    open->shown = open->count;
    int space = out->length && (out->data[out->length - 1] == ' ');
    out->length -= (size_t)space;
    if (mark->tag == A)
        write_target(out, mark->node, resolve);
    else
        write_text(out, fence_of(mark->tag));
    if (space)
        write_text(out, " ");
}

static void step_mark(struct writer *out, struct open *open, const struct mark *mark, PyObject *resolve) {
    if (!mark->closes) {
        for (unsigned i = 0; i < open->count; i++)
            if (open->marks[i]->tag == mark->tag || open->marks[i]->tag == CODE)
                return;
        if (open->count < OPEN_MARKS)
            open->marks[open->count++] = mark;
        return;
    }
    for (unsigned i = 0; i < open->count; i++)
        if (open->marks[i]->node == mark->node) {
            while (open->count > i) /* marks inside it that were not closed end with it */
                close_one(out, open, resolve);
            return;
        }
}

static int is_in_code(const struct open *open) {
    return open->count && open->marks[open->count - 1]->tag == CODE;
}

/* Write the text of a block with its inline markup; `lead` begins each further line. */
static void write_marked(struct writer *out, const struct blocks *page, const struct block *block, const char *lead,
                         int in_cell, PyObject *resolve) {
    struct open open = {.count = 0};
    const char *text = page->text + block->begin;
    uint32_t next = block->first_mark, length = (uint32_t)(block->end - block->begin);
    int line = 1;
    for (uint32_t i = 0; i < length && !out->failed; i++) {
        for (; next < block->last_mark && page->marks[next].at <= i; next++)
            step_mark(out, &open, &page->marks[next], resolve);
        char one = text[i];
        if (one == '\n') {
            while (open.count)
                close_one(out, &open, resolve);
            write_text(out, in_cell ? " " : "  \n");
            write_text(out, in_cell ? "" : lead);
            line = 1;
            continue;
        }
        if ((unsigned char)one > ' ')
            show_open(out, &open);
        else if (open.shown < open.count && out->length && out->data[out->length - 1] == ' ')
            continue;
        if (!is_in_code(&open) && (escaped(one) || (line && begins(one)) || (in_cell && one == '|')))
            write_text(out, "\\");
        write_bytes(out, &one, 1);
        line = 0;
    }
    while (open.count && !out->failed)
        close_one(out, &open, resolve);
}

static void write_lead(char *lead, size_t size, const struct stand *stand, int continues) {
    unsigned spaces = stand->deep ? 2 * (stand->deep - 1) + (continues ? 2 : 0) : 0;
    PyOS_snprintf(lead, size, "%s%*s", stand->quote ? "> " : "", (int)(spaces > 20 ? 20 : spaces), "");
}

static void write_cell_markdown(struct writer *out, const struct blocks *page, const struct block *block,
                                const struct stand *stand, const struct stand *before, unsigned *columns,
                                unsigned *rows, PyObject *resolve) {
    if (before->table != stand->table) {
        *columns = *rows = 0;
        write_text(out, out->length ? "\n\n| " : "| ");
    } else if (before->row != stand->row) {
        write_text(out, " |\n");
        if (*rows == 0) {
            for (unsigned i = 0; i <= *columns; i++)
                write_text(out, "| --- ");
            write_text(out, "|\n");
        }
        ++*rows;
        write_text(out, "| ");
    } else if (before->cell != stand->cell) {
        write_text(out, " | ");
        *columns += *rows == 0;
    } else {
        write_text(out, " ");
    }
    write_marked(out, page, block, "", 1, resolve);
}

static void write_markdown(struct writer *out, const struct blocks *page, const struct block *block,
                           const struct stand *stand, const struct stand *before, int first, PyObject *resolve) {
    char lead[32];
    int same_item = !first && stand->item && stand->item == before->item;
    int same_list = !first && stand->item && before->item && !same_item;
    write_lead(lead, sizeof lead, stand, 0);
    if (!first)
        write_text(out, same_list ? "\n" : "\n\n");
    if (stand->pre) {
        write_text(out, "```\n");
        write_bytes(out, page->text + block->begin, block->end - block->begin);
        write_text(out, "\n```");
        return;
    }
    if (same_item) {
        write_lead(lead, sizeof lead, stand, 1);
        write_text(out, lead);
    } else {
        write_text(out, lead);
        if (stand->item)
            write_text(out, page->elements[stand->list].tag == OL ? "1. " : "- ");
        write_lead(lead, sizeof lead, stand, 1);
    }
    if (block->heading && !stand->item) {
        write_bytes(out, "######", block->heading);
        write_text(out, " ");
    }
    write_marked(out, page, block, lead, 0, resolve);
}

static const char *separator(const struct blocks *page, const struct block *block, const struct stand *stand,
                             const struct stand *before) {
    uint8_t tag = page->elements[block->element].tag;
    if (stand->table && stand->table == before->table)
        return stand->row != before->row ? "\n" : stand->cell != before->cell ? "\t" : " ";
    if ((stand->item && before->item) || tag == DD)
        return "\n";
    return "\n\n";
}

void document_write(struct writer *out, const struct blocks *page, const uint8_t *chosen, enum choice which,
                    PyObject *resolve) {
    struct tables tables = {{0}, {0}};
    struct stand before = {0};
    unsigned columns = 0, rows = 0;
    int first = 1;
    for (uint32_t i = 0; i < page->block_count && !out->failed; i++) {
        const struct block *block = &page->blocks[i];
        if (chosen[i] != which)
            continue;
        struct stand stand = stand_of(page, &tables, block->element);
        if (resolve == NULL) {
            if (!first)
                write_text(out, separator(page, block, &stand, &before));
            write_bytes(out, page->text + block->begin, block->end - block->begin);
        } else {
            if (before.table && before.table != stand.table)
                write_text(out, " |");
            if (stand.table)
                write_cell_markdown(out, page, block, &stand, &before, &columns, &rows, resolve);
            else
                write_markdown(out, page, block, &stand, &before, first, resolve);
        }
        before = stand;
        first = 0;
    }
    if (before.table && resolve != NULL)
        write_text(out, " |");
}
