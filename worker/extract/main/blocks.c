/* Make blocks of text from a tree in one walk, then sum them up over the elements that they are in. */

#include "main.h"

enum display { INLINE, BLOCK, SKIP };

static const struct {
    const char *name;
    enum tag tag;
    enum display display;
} tags[] = {
    {"a", A, INLINE}, {"address", DIV, BLOCK}, {"applet", SKIPPED, SKIP}, {"article", ARTICLE, BLOCK},
    {"aside", ASIDE, BLOCK}, {"audio", SKIPPED, SKIP}, {"b", BOLD, INLINE}, {"blockquote", BLOCKQUOTE, BLOCK},
    {"body", BODY, BLOCK}, {"br", BR, INLINE}, {"button", BUTTON, BLOCK}, {"canvas", SKIPPED, SKIP},
    {"caption", CAPTION, BLOCK}, {"center", DIV, BLOCK}, {"code", CODE, INLINE}, {"datalist", SKIPPED, SKIP},
    {"dd", DD, BLOCK}, {"details", DETAILS, BLOCK}, {"dialog", DIALOG, BLOCK}, {"dir", LIST, BLOCK},
    {"div", DIV, BLOCK}, {"dl", DL, BLOCK}, {"dt", DT, BLOCK}, {"em", EMPHASIS, INLINE},
    {"embed", SKIPPED, SKIP}, {"fieldset", FIELDSET, BLOCK}, {"figcaption", CAPTION, BLOCK},
    {"figure", FIGURE, BLOCK}, {"footer", FOOTER, BLOCK}, {"form", FORM, BLOCK}, {"h1", H1, BLOCK},
    {"h2", H2, BLOCK}, {"h3", H3, BLOCK}, {"h4", H4, BLOCK}, {"h5", H5, BLOCK}, {"h6", H6, BLOCK},
    {"head", HEAD, BLOCK}, {"header", HEADER, BLOCK}, {"hr", HR, BLOCK}, {"html", OTHER, BLOCK},
    {"i", EMPHASIS, INLINE}, {"iframe", SKIPPED, SKIP}, {"img", IMG, INLINE}, {"input", INPUT, INLINE},
    {"label", LABEL, INLINE}, {"legend", DIV, BLOCK}, {"li", LI, BLOCK}, {"main", MAIN, BLOCK},
    {"menu", LIST, BLOCK}, {"meta", META, SKIP}, {"nav", NAV, BLOCK}, {"noframes", SKIPPED, SKIP},
    {"noscript", NOSCRIPT, INLINE}, {"object", SKIPPED, SKIP}, {"ol", OL, BLOCK}, {"option", SKIPPED, SKIP},
    {"p", P, BLOCK}, {"pre", PRE, BLOCK}, {"script", SCRIPT, SKIP}, {"search", FORM, BLOCK},
    {"section", SECTION, BLOCK}, {"select", SKIPPED, SKIP}, {"strong", BOLD, INLINE}, {"style", SKIPPED, SKIP},
    {"summary", SUMMARY, BLOCK}, {"svg", SKIPPED, SKIP}, {"table", TABLE, BLOCK}, {"tbody", OTHER, BLOCK},
    {"td", CELL, BLOCK}, {"template", SKIPPED, SKIP}, {"textarea", SKIPPED, SKIP}, {"tfoot", OTHER, BLOCK},
    {"th", HEADCELL, BLOCK}, {"thead", OTHER, BLOCK}, {"time", TIME, INLINE}, {"title", TITLE, SKIP},
    {"tr", ROW, BLOCK}, {"ul", LIST, BLOCK}, {"video", SKIPPED, SKIP},
};

#define SLOTS 256
static unsigned char slots[SLOTS]; /* open addressing; a slot has the index in `tags` plus 1 */

static unsigned slot_of(const char *name) {
    unsigned hash = 5381;
    while (*name)
        hash = hash * 33 ^ (unsigned char)*name++;
    return (hash ^ hash >> 8) % SLOTS;
}

struct nature {
    const xmlChar *name;
    uint8_t tag, display;
};

/* Equal names in one tree are one pointer, so most names are hashed only once. */
#define NEAR 64

static const struct nature *nature(struct nature *near, const xmlChar *name) {
    struct nature *found = &near[((uintptr_t)name >> 4) % NEAR];
    if (found->name == name)
        return found;
    found->name = name;
    unsigned at = slot_of((const char *)name);
    while (slots[at] && strcmp(tags[slots[at] - 1].name, (const char *)name) != 0)
        at = (at + 1) % SLOTS;
    if (slots[at]) {
        found->tag = tags[slots[at] - 1].tag, found->display = tags[slots[at] - 1].display;
    } else {
        int custom = strchr((const char *)name, '-') != NULL;
        found->tag = custom ? CUSTOM : OTHER, found->display = custom ? BLOCK : INLINE;
    }
    return found;
}

/* The classes of ASCII characters. */
enum { WHITE, SMALL, CAPITAL, DIGIT, END, PAUSE, TWO_DOTS, CLOSING, ELSE };
static unsigned char ascii[128];

void blocks_begin(void) {
    for (unsigned i = 0; i < sizeof tags / sizeof *tags; i++) {
        unsigned at = slot_of(tags[i].name);
        while (slots[at])
            at = (at + 1) % SLOTS;
        slots[at] = (unsigned char)(i + 1);
    }
    for (unsigned i = 0; i < 128; i++)
        ascii[i] = i <= ' '               ? WHITE
                   : i >= 'a' && i <= 'z' ? SMALL
                   : i >= 'A' && i <= 'Z' ? CAPITAL
                   : i >= '0' && i <= '9' ? DIGIT
                                          : ELSE;
    ascii['.'] = ascii['!'] = ascii['?'] = END;
    ascii[','] = ascii[';'] = PAUSE;
    ascii[':'] = TWO_DOTS;
    ascii['"'] = ascii['\''] = ascii[')'] = ascii[']'] = CLOSING;
}

/* Return an attribute's value if it is in one piece, as it nearly always is; otherwise "". */
static const char *content_of(const xmlAttr *attribute) {
    const xmlNode *text = attribute->children;
    return text != NULL && text->next == NULL && text->type == XML_TEXT_NODE && text->content != NULL
               ? (const char *)text->content
               : "";
}

const char *value_of(const xmlNode *node, const char *name) {
    for (const xmlAttr *at = node->properties; at != NULL; at = at->next)
        if (at->ns == NULL && strcmp((const char *)at->name, name) == 0)
            return content_of(at);
    return NULL;
}

/* The state of the walk. */
struct walk {
    struct blocks *page;
    struct block now;
    uint32_t element;
    const xmlNode *link, *bold, *pre, *unread;
    int spaced, broken, digits, begun, full, failed;
    unsigned four; /* the last four digits */
};

static int grow(void **data, uint32_t count, uint32_t *size, size_t each) {
    if (count < *size)
        return 1;
    uint32_t more = 2 * *size + 256;
    void *grown = PyMem_RawRealloc(*data, more * each);
    if (grown == NULL)
        return 0;
    *data = grown, *size = more;
    return 1;
}

static int reserve(struct blocks *page, size_t more) {
    if (page->text_size - page->text_length > more)
        return 1;
    size_t size = 2 * (page->text_size + more) + 1024;
    char *text = PyMem_RawRealloc(page->text, size);
    if (text == NULL)
        return 0;
    page->text = text, page->text_size = size;
    return 1;
}

static void note_mark(struct walk *walk, const xmlNode *node, uint8_t tag, int closes) {
    struct blocks *page = walk->page;
    if (page->mark_count >= MOST_MARKS)
        return;
    if (!grow((void **)&page->marks, page->mark_count, &page->mark_size, sizeof *page->marks)) {
        walk->failed = 1;
        return;
    }
    page->marks[page->mark_count++] =
        (struct mark){node, (uint32_t)(page->text_length - walk->now.begin), tag, (uint8_t)closes};
}

static uint64_t hash_of(const char *text, size_t length) {
    uint64_t hash = 0x9e3779b97f4a7c15u ^ length, eight;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&eight, text, 8);
        hash = (hash ^ eight) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    eight = 0;
    memcpy(&eight, text, length);
    hash = (hash ^ eight) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 29;
}

static void begin_block(struct walk *walk) {
    struct blocks *page = walk->page;
    walk->now = (struct block){
        .begin = page->text_length, .element = walk->element, .first_mark = page->mark_count};
    walk->spaced = 1, walk->broken = walk->digits = walk->begun = 0;
    if (walk->link != NULL)
        note_mark(walk, walk->link, A, 0);
}

#define SHORT_TEXT 160 /* a longer text is not searched for words */

static void end_block(struct walk *walk) {
    struct blocks *page = walk->page;
    struct block *now = &walk->now;
    if (now->length == 0) {
        page->text_length = now->begin;
        page->mark_count = now->first_mark;
    } else {
        if (walk->digits == 4 && (walk->four / 100 == 19 || walk->four / 100 == 20))
            now->year = 1;
        while (page->text_length > now->begin &&
               (unsigned char)page->text[page->text_length - 1] <= ' ')
            page->text_length--;
        now->end = page->text_length;
        now->last_mark = page->mark_count;
        size_t bytes = now->end - now->begin;
        now->hash = hash_of(page->text + now->begin, bytes);
        if (bytes <= SHORT_TEXT)
            now->hints = text_groups(page->text + now->begin, bytes);
        if (page->block_count >= MOST_BLOCKS)
            walk->full = 1;
        else if (!grow((void **)&page->blocks, page->block_count, &page->block_size, sizeof *page->blocks))
            walk->failed = 1;
        else
            page->blocks[page->block_count++] = *now;
    }
    begin_block(walk);
}

/* Return the class of a character that is not ASCII, and how much it adds to a length. */
static unsigned sign_of(uint32_t sign, unsigned *counts, uint8_t *symbols) {
    *counts = 1;
    switch (sign) {
    case 0x3002: case 0xff01: case 0xff1f: case 0xff0e: case 0xff61: case 0x964: case 0x965: case 0x61f:
    case 0x6d4: case 0x2026: case 0x1362: case 0x104b: case 0x17d4: case 0x589:
        return SENTENCE_END;
    case 0x3001: case 0xff0c: case 0xff1b: case 0x60c: case 0x61b: case 0x55d: case 0x1363:
        return COMMA;
    case 0xff1a:
        return COLON;
    case 0x201d: case 0x2019: case 0xbb: case 0x300d: case 0x300f: case 0xff09:
        if (sign == 0xbb)
            *symbols |= 1;
        return BRACKET;
    case 0x203a: case 0xb7: case 0x2022: case 0x25b6: case 0x2192:
        *symbols |= 1;
        return OTHER_SIGN;
    case 0xa9:
        *symbols |= 2;
        return OTHER_SIGN;
    case 0x20ac: case 0xa3: case 0xa5: case 0x20b9:
        *symbols |= 4;
        return OTHER_SIGN;
    }
    if (sign < 0x2e80)
        return sign >= 0x2000 && sign < 0x2c00 ? OTHER_SIGN : LETTER;
    if (sign >= 0x3040 && sign < 0x3100)
        *counts = 2;
    else if (sign >= 0xac00 && sign < 0xd7b0)
        *counts = 2;
    else if ((sign >= 0x3400 && sign < 0xa000) || (sign >= 0xf900 && sign < 0xfb00) || sign >= 0x20000)
        *counts = 3;
    return LETTER;
}

#define EACH(byte) (0x0101010101010101u * (byte))
#define HIGH EACH(0x80)

/* Find the blanks among eight characters that are small letters with single blanks between them: the
 * result has the high bit of each blank. It has all bits if there is any other character. */
static inline uint64_t blanks_of(uint64_t eight, int spaced) {
    uint64_t no_blank = eight ^ EACH(0x20);
    uint64_t blank = ~(((no_blank & ~HIGH) + ~HIGH) | no_blank) & HIGH;
    uint64_t small = (eight + EACH(0x80 - 'a')) & ~(eight + EACH(0x7f - 'z')) & ~eight & HIGH;
    return (small | blank) != HIGH || blank & (blank << 8 | (spaced ? 0x80 : 0)) ? ~(uint64_t)0 : blank;
}

/* Append text to the block. Each run of white space becomes one space, except in `pre`. */
static void append(struct walk *walk, const char *from) {
    struct blocks *page = walk->page;
    struct block *now = &walk->now;
    size_t left = strlen(from);
    if (!reserve(page, left + 1)) {
        walk->failed = 1;
        return;
    }
    char *to = page->text + page->text_length;
    const unsigned char *at = (const unsigned char *)from, *end = at + left;
    uint32_t signs = 0;
    unsigned last = now->ends;
    while (at < end) {
        if (end - at >= 8 && !walk->digits && walk->pre == NULL) { /* most text, eight characters at a time */
            uint64_t eight, blanks;
            memcpy(&eight, at, 8);
            if ((blanks = blanks_of(eight, walk->spaced)) != ~(uint64_t)0) {
                memcpy(to, at, 8);
                to += 8, at += 8;
                signs += 8 - (unsigned)((blanks >> 7) * EACH(1) >> 56);
                walk->spaced = to[-1] == ' ';
                last = LETTER;
                continue;
            }
        }
        unsigned char one = *at;
        if (one < 0x80) {
            unsigned kind = ascii[one];
            if (kind == SMALL) { /* most characters */
                do
                    *to++ = (char)*at++, signs++;
                while (at < end && *at < 0x80 && ascii[*at] == SMALL);
                walk->spaced = walk->digits = 0;
                last = LETTER;
                continue;
            }
            at++;
            if (kind == WHITE) {
                if (walk->pre != NULL && walk->begun + signs && one != '\r')
                    *to++ = one == '\t' ? ' ' : (char)one;
                else if (!walk->spaced)
                    *to++ = ' ';
                walk->spaced = 1;
                if (walk->digits == 4 && (walk->four / 100 == 19 || walk->four / 100 == 20))
                    now->year = 1;
                walk->digits = 0;
                continue;
            }
            *to++ = (char)one;
            signs++;
            walk->spaced = 0;
            if (kind == DIGIT) {
                walk->four = walk->digits ? walk->four % 1000 * 10 + (one - '0') : (unsigned)(one - 48);
                walk->digits++;
                now->digits++;
                last = LETTER;
                continue;
            }
            if (walk->digits == 4 && (walk->four / 100 == 19 || walk->four / 100 == 20))
                now->year = 1;
            walk->digits = 0;
            switch (kind) {
            case CAPITAL:
                now->capitals++;
                last = LETTER;
                break;
            case END:
                if (at == end || *at <= ' ' || (*at < 0x80 && ascii[*at] == CLOSING) || *at >= 0xe2)
                    now->sentences++;
                last = SENTENCE_END;
                break;
            case PAUSE:
                now->commas++;
                last = COMMA;
                break;
            case TWO_DOTS:
                last = COLON;
                break;
            case CLOSING:
                last = last == SENTENCE_END ? SENTENCE_END : BRACKET;
                break;
            default:
                if (one == '|' || one == '>')
                    now->symbols |= 1;
                else if (one == '$')
                    now->symbols |= 4;
                else if (one == '@')
                    now->symbols |= 8;
                else if (one == '#')
                    now->symbols |= 16;
                else if (one == '/')
                    now->symbols |= 32;
                else if (one == '+' || one == '*')
                    now->symbols |= 64;
                last = OTHER_SIGN;
            }
            continue;
        }
        size_t size = one < 0xe0 ? 2 : one < 0xf0 ? 3 : 4;
        if ((size_t)(end - at) < size)
            break;
        uint32_t sign = one & 0x7fu >> size;
        for (size_t i = 1; i < size; i++)
            sign = sign << 6 | (at[i] & 0x3f);
        if (sign == 0xa0 || sign == 0x3000 || (sign >= 0x2000 && sign <= 0x200b) || sign == 0xfeff) {
            if (!walk->spaced)
                *to++ = ' ';
            walk->spaced = 1;
            at += size;
            continue;
        }
        memcpy(to, at, size);
        to += size, at += size;
        walk->spaced = walk->digits = 0;
        unsigned counts, kind = sign_of(sign, &counts, &now->symbols);
        signs += counts;
        now->sentences += kind == SENTENCE_END;
        now->commas += kind == COMMA;
        last = kind == BRACKET && last == SENTENCE_END ? SENTENCE_END : kind;
    }
    page->text_length = (size_t)(to - page->text);
    if (signs) {
        now->ends = (uint8_t)last;
        now->length += signs;
        if (walk->link != NULL)
            now->linked += signs;
        if (walk->bold != NULL)
            now->bold += signs;
        walk->broken = 0;
        walk->begun = 1;
    }
}

/* The first line break ends a line; the second ends the block. */
static void line_break(struct walk *walk) {
    if (!walk->begun)
        return;
    if (walk->broken) {
        end_block(walk);
        return;
    }
    struct blocks *page = walk->page;
    if (!reserve(page, 1)) {
        walk->failed = 1;
        return;
    }
    if (walk->spaced && page->text_length > walk->now.begin)
        page->text_length--;
    page->text[page->text_length++] = '\n';
    walk->spaced = walk->broken = 1;
    walk->now.breaks += walk->now.breaks < 255;
}

static uint32_t above_of(uint8_t tag) {
    switch (tag) {
    case ARTICLE: return IN_ARTICLE;
    case MAIN: return IN_MAIN;
    case NAV: return IN_NAV;
    case ASIDE: return IN_ASIDE;
    case HEADER: return IN_HEADER;
    case FOOTER: return IN_FOOTER;
    case FORM: case FIELDSET: return IN_FORM;
    case LIST: case OL: return IN_LIST;
    case LI: return IN_LI;
    case TABLE: return IN_TABLE;
    case BLOCKQUOTE: return IN_QUOTE;
    case FIGURE: return IN_FIGURE;
    case DL: return IN_DL;
    case SECTION: return IN_SECTION;
    case DETAILS: return IN_DETAILS;
    case DIALOG: return IN_DIALOG;
    case PRE: return IN_PRE;
    default: return 0;
    }
}

static uint32_t above_of_role(const char *role) {
    static const struct {
        const char *role;
        uint32_t above;
    } roles[] = {{"main", IN_MAIN},           {"article", IN_ARTICLE}, {"navigation", IN_NAV}, {"banner", IN_HEADER},
                 {"contentinfo", IN_FOOTER},  {"complementary", IN_ASIDE}, {"search", IN_FORM}, {"form", IN_FORM},
                 {"dialog", IN_DIALOG},       {"alertdialog", IN_DIALOG}, {"menu", IN_NAV}, {"menubar", IN_NAV},
                 {"toolbar", IN_NAV},         {"tablist", IN_NAV}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i].role) == 0)
            return roles[i].above;
    return 0;
}

static uint32_t held_comments(const char *value) {
    return strstr(value, "omment") != NULL || strstr(value, "disqus") != NULL ? names_comments(value) * HOLDS_COMMENTS : 0;
}

/* Hash the first word of a class without its digits: later words often belong to one element only. */
static uint32_t form_of(const char *value) {
    uint32_t form = 2166136261u;
    while (*value == ' ')
        value++;
    for (; (unsigned char)*value > ' '; value++)
        if (*value < '0' || *value > '9')
            form = (form ^ (unsigned char)*value) * 16777619u;
    return form;
}

/* Read the attributes of an element: return its groups of class words, and add its bits to `above`. */
static uint32_t attributes(struct blocks *page, const xmlNode *node, uint32_t *above, uint64_t *like, uint32_t *form) {
    uint32_t groups = 0;
    for (const xmlAttr *at = node->properties; at != NULL; at = at->next) {
        const char *name = (const char *)at->name, *value;
        switch (*name) {
        case 'c':
            if (strcmp(name, "class") == 0) {
                value = content_of(at);
                groups |= class_groups(value);
                *above |= held_comments(value);
                *like ^= hash_of(value, strlen(value));
                *form ^= form_of(value);
            }
            break;
        case 'i':
            if (strcmp(name, "id") == 0) {
                groups |= class_groups(content_of(at));
                *above |= held_comments(content_of(at));
            } else if (strcmp(name, "itemprop") == 0) {
                value = content_of(at);
                groups |= class_groups(value);
                if (strcmp(value, "articleBody") == 0)
                    *above |= IN_BODY_OF_ARTICLE;
            } else if (strcmp(name, "itemtype") == 0) {
                value = content_of(at);
                page->kind |= kind_of(value);
                if (NULL != strstr(value, "Comment"))
                    *above |= IN_COMMENT | HOLDS_COMMENTS;
            }
            break;
        case 'r':
            if (strcmp(name, "role") == 0)
                *above |= above_of_role(content_of(at));
            break;
        case 'h':
            if (strcmp(name, "hidden") == 0)
                *above |= IN_HIDDEN;
            break;
        case 'a':
            if (strcmp(name, "aria-hidden") == 0 && strcmp(content_of(at), "true") == 0)
                *above |= IN_HIDDEN;
            break;
        case 's':
            if (strcmp(name, "style") == 0) {
                value = content_of(at);
                if (NULL != strstr(value, "display:none") || NULL != strstr(value, "display: none"))
                    *above |= IN_HIDDEN;
            }
            break;
        }
    }
    return groups;
}

static void open_element(struct walk *walk, const xmlNode *node, uint8_t tag) {
    struct blocks *page = walk->page;
    end_block(walk);
    if (page->element_count >= MOST_ELEMENTS) {
        walk->full = 1;
        return;
    }
    if (!grow((void **)&page->elements, page->element_count, &page->element_size, sizeof *page->elements)) {
        walk->failed = 1;
        return;
    }
    uint32_t place = page->element_count++;
    struct element *own = &page->elements[place], *parent = &page->elements[walk->element];
    *own = (struct element){.node = node, .parent = walk->element, .first = page->block_count, .tag = tag};
    uint64_t like = tag * 0x9e3779b97f4a7c15u;
    own->above = above_of(tag);
    own->form = (parent->form ^ tag) * 0x9e3779b1u; /* the root is its own parent */
    own->groups = attributes(page, node, &own->above, &like, &own->form);
    if (tag == BODY || tag == FORM) /* a class such as "comments-open", or the form for a new comment */
        own->above &= ~HOLDS_COMMENTS;
    own->like = (uint32_t)(like ^ like >> 32);
    own->groups_above = own->groups;
    if (place) {
        own->above |= parent->above & ~HOLDS_COMMENTS;
        own->groups_above |= parent->groups_above;
        own->depth = (uint16_t)(parent->depth + (parent->depth < 60000));
        own->heading = parent->heading;
    }
    if (tag >= H1 && tag <= H6)
        own->heading = (uint8_t)(tag - H1 + 1);
    walk->element = walk->now.element = place;
}

static void close_element(struct walk *walk) {
    struct element *own = &walk->page->elements[walk->element];
    end_block(walk);
    own->last = walk->page->block_count;
    walk->element = walk->now.element = own->parent;
}

size_t fold(char *to, size_t room, const char *from, size_t length) {
    size_t at = 0;
    for (size_t i = 0; i < length && at < room; i++) {
        unsigned char one = (unsigned char)from[i];
        unsigned kind = one < 0x80 ? ascii[one] : SMALL;
        if (kind == SMALL || kind == DIGIT)
            to[at++] = (char)one;
        else if (kind == CAPITAL)
            to[at++] = (char)(one | 0x20);
        else if (at && to[at - 1] != ' ')
            to[at++] = ' ';
    }
    while (at && to[at - 1] == ' ')
        at--;
    return at;
}

static void walk_tree(struct walk *walk, const xmlNode *root, int noscript) {
    struct nature near[NEAR] = {{NULL, OTHER, INLINE}};
    const xmlNode *node = root;
    for (;;) {
        const xmlNode *child = NULL;
        if (node->type == XML_TEXT_NODE || node->type == XML_CDATA_SECTION_NODE) {
            if (walk->unread == NULL && node->content != NULL)
                append(walk, (const char *)node->content);
        } else if (node->type == XML_ELEMENT_NODE) {
            const struct nature *found = nature(near, node->name);
            uint8_t tag = found->tag;
            child = node->children;
            if (found->display == SKIP || (tag == NOSCRIPT && !noscript)) {
                child = NULL;
                if (tag != SKIPPED && tag != NOSCRIPT)
                    note_unseen(walk->page, node, tag);
            } else if (found->display == BLOCK) {
                open_element(walk, node, tag);
                if (tag == HEAD && walk->unread == NULL)
                    walk->unread = node;
                else /* the parser is older than HTML 5 and has not noticed the end of the head */
                    walk->unread = NULL;
                if (tag == PRE && walk->pre == NULL)
                    walk->pre = node;
            } else if (walk->unread == NULL) {
                uint32_t above = 0;
                uint64_t like = 0;
                uint32_t form = 0;
                switch (tag) {
                case BR:
                    line_break(walk);
                    break;
                case IMG:
                    walk->now.images++;
                    break;
                case INPUT:
                    walk->now.inputs++;
                    break;
                case TIME:
                    walk->now.times++;
                    break;
                case A:
                    if (walk->link == NULL && value_of(node, "href") != NULL) {
                        walk->link = node;
                        walk->now.links++;
                        note_mark(walk, node, A, 0);
                    }
                    break;
                case BOLD:
                    if (walk->bold == NULL)
                        walk->bold = node;
                    note_mark(walk, node, tag, 0);
                    break;
                case EMPHASIS:
                case CODE:
                    note_mark(walk, node, tag, 0);
                    break;
                }
                if (node->properties != NULL && tag != IMG && tag != INPUT)
                    walk->now.groups |= attributes(walk->page, node, &above, &like, &form);
            }
        }
        if (walk->full || walk->failed)
            return;
        if (child != NULL) {
            node = child;
            continue;
        }
        for (;;) {
            if (node->type == XML_ELEMENT_NODE) {
                const struct nature *found = nature(near, node->name);
                if (found->display == BLOCK)
                    close_element(walk);
                if (node == walk->link) {
                    note_mark(walk, node, A, 1);
                    walk->link = NULL;
                } else if (walk->unread == NULL &&
                           (found->tag == BOLD || found->tag == EMPHASIS || found->tag == CODE)) {
                    note_mark(walk, node, found->tag, 1);
                }
                if (node == walk->bold)
                    walk->bold = NULL;
                if (node == walk->pre)
                    walk->pre = NULL;
                if (node == walk->unread)
                    walk->unread = NULL;
                if (walk->full || walk->failed)
                    return;
            }
            if (node == root)
                return;
            if (node->next != NULL)
                break;
            node = node->parent;
        }
        node = node->next;
    }
}

static size_t table_size(uint32_t count) {
    size_t size = 64;
    while (size < 2 * (size_t)count)
        size *= 2;
    return size;
}

/* Count equal texts of blocks, and equal elements of one parent. */
static int count_alike(struct blocks *page) {
    size_t most = page->element_count > page->block_count ? page->element_count : page->block_count;
    size_t size = table_size((uint32_t)most);
    struct {
        uint64_t key;
        uint32_t count, first;
    } *table = PyMem_RawCalloc(size, sizeof *table);
    uint32_t *at = PyMem_RawMalloc((most + 1) * sizeof *at);
    if (table == NULL || at == NULL) {
        PyMem_RawFree(table);
        PyMem_RawFree(at);
        return 0;
    }
    for (int pass = 0; pass < 2; pass++) {
        uint32_t count = pass ? page->element_count : page->block_count;
        memset(table, 0, size * sizeof *table);
        for (uint32_t i = 0; i < count; i++) {
            const struct element *element = pass ? &page->elements[i] : NULL;
            uint64_t key = pass ? ((uint64_t)element->parent << 32 | element->like) + 1 : page->blocks[i].hash | 1;
            size_t slot = slot_for(key, size);
            while (table[slot].key && table[slot].key != key)
                slot = (slot + 1) & (size - 1);
            table[slot].key = key;
            if (table[slot].count++ == 0)
                table[slot].first = i;
            at[i] = (uint32_t)slot;
        }
        for (uint32_t i = 0; i < count; i++) {
            *(pass ? &page->elements[i].siblings : &page->blocks[i].repeats) = table[at[i]].count;
            if (!pass)
                page->blocks[i].same = table[at[i]].first;
        }
    }
    PyMem_RawFree(table);
    PyMem_RawFree(at);
    return 1;
}

/* A good block reads like a paragraph. */
static int is_good(const struct block *block) {
    return block->length >= 80 && block->linked * 3 < block->length && block->sentences + block->commas / 2 >= 1;
}

static void judge_title(const struct blocks *page, struct block *block) {
    char folded[LONGEST_TITLE];
    size_t bytes = block->end - block->begin;
    if (bytes < 6 || bytes > LONGEST_TITLE || page->title_length < 6)
        return;
    size_t length = fold(folded, sizeof folded, page->text + block->begin, bytes);
    if (length >= 6 && memmem(page->title, page->title_length, folded, length) != NULL)
        block->titled = 2 * length >= page->title_length ? 2 : 1;
    else if (length > page->title_length && memmem(folded, length, page->title, page->title_length) != NULL)
        block->titled = 2;
}

static void add_up(struct blocks *page) {
    for (uint32_t i = 0; i < page->block_count; i++) {
        struct block *block = &page->blocks[i];
        struct element *own = &page->elements[block->element];
        block->good = (uint8_t)is_good(block);
        block->heading = own->heading;
        judge_title(page, block);
        block->in_body = (uint8_t)said_share(&page->said[0], page->text + block->begin, block->end - block->begin);
        block->in_description =
            (uint8_t)said_share(&page->said[1], page->text + block->begin, block->end - block->begin);
        own->length += block->length;
        own->linked += block->linked;
        own->in_paragraphs += own->tag == P ? block->length : 0;
        own->good += block->good ? block->length : 0;
        own->headings += block->heading ? block->length : 0;
    }
    for (uint32_t i = page->element_count; i-- > 1;) {
        const struct element *own = &page->elements[i];
        struct element *parent = &page->elements[own->parent];
        parent->length += own->length;
        parent->linked += own->linked;
        parent->in_paragraphs += own->in_paragraphs;
        parent->good += own->good;
        parent->headings += own->headings;
    }
    for (uint32_t i = 0; i < page->element_count; i++) {
        struct element *own = &page->elements[i];
        const struct element *parent = &page->elements[own->parent];
        own->wider = parent->last - parent->first > own->last - own->first ? own->parent : parent->wider;
    }
}

int blocks_read(struct blocks *page, const xmlNode *root, int noscript) {
    struct walk walk = {.page = page};
    begin_block(&walk);
    /* lxml puts what follows </html> under more roots, beside the first. Element 0 contains them all. */
    if (!grow((void **)&page->elements, 0, &page->element_size, sizeof *page->elements))
        return 0;
    page->elements[page->element_count++] = (struct element){.node = root, .tag = OTHER};
    int whole = root->parent != NULL && root->parent->type != XML_ELEMENT_NODE;
    for (; root != NULL && !walk.full && !walk.failed; root = whole ? root->next : NULL)
        walk_tree(&walk, root, noscript);
    end_block(&walk);
    for (; walk.element; walk.element = page->elements[walk.element].parent)
        page->elements[walk.element].last = page->block_count;
    page->elements[0].last = page->block_count;
    if (walk.failed || !count_alike(page))
        return 0;
    note_end(page);
    add_up(page);
    return 1;
}

void blocks_free(struct blocks *page) {
    PyMem_RawFree(page->text);
    PyMem_RawFree(page->elements);
    PyMem_RawFree(page->blocks);
    PyMem_RawFree(page->marks);
    PyMem_RawFree(page->said[0].slots);
    PyMem_RawFree(page->said[1].slots);
}
