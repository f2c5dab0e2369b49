/* Take what hidden markup says about a page: its kind, its title, and texts that it repeats, such as
 * `articleBody` of JSON-LD. These texts are kept as sets of shingles, three words in a row each. */

#include "main.h"

#define MOST_SHINGLES 30000
#define SLOTS 65536
#define MOST_SCRIPTS 32
#define MOST_KEYS 64 /* of one script */

/* A word is a run of letters and digits, or one character of a script without spaces. `number` is a hash
 * of the last three words; 0 before there are three. */
struct words {
    const unsigned char *at, *end;
    uint32_t last[2];
    unsigned count;
    uint32_t number;
};

static int next_word(struct words *words) {
    uint32_t word = 2166136261u;
    int letters = 0;
    for (; words->at < words->end; words->at++) {
        unsigned char one = *words->at;
        if (one >= 'A' && one <= 'Z')
            one |= 0x20;
        if (one >= 0xe3 && one < 0xf0) { /* U+3000 and up: East Asian */
            if (letters)
                break;
            for (int i = 0; i < 3 && words->at < words->end; i++)
                word = (word ^ *words->at++) * 16777619u;
            letters = 1;
            break;
        }
        if ((one >= 'a' && one <= 'z') || (one >= '0' && one <= '9') || one >= 0x80) {
            word = (word ^ one) * 16777619u;
            letters = 1;
        } else if (letters) {
            break;
        }
    }
    if (!letters)
        return 0;
    words->count++;
    words->number = words->count < 3 ? 0 : ((words->last[0] * 31 + words->last[1]) * 31 + word) | 1;
    words->last[0] = words->last[1];
    words->last[1] = word;
    return 1;
}

static void add_text(struct said *said, const char *text, size_t length) {
    struct words words = {.at = (const unsigned char *)text, .end = (const unsigned char *)text + length};
    if (said->slots == NULL && (said->slots = PyMem_RawCalloc(SLOTS, sizeof *said->slots)) == NULL)
        return; /* this is one hint of many, and the page is read without it */
    while (said->count < MOST_SHINGLES && next_word(&words)) {
        if (!words.number)
            continue;
        size_t at = slot_for(words.number, SLOTS);
        while (said->slots[at] && said->slots[at] != words.number)
            at = (at + 1) % SLOTS;
        said->count += said->slots[at] == 0;
        said->slots[at] = words.number;
    }
}

uint32_t said_share(const struct said *said, const char *text, size_t length) {
    struct words words = {.at = (const unsigned char *)text, .end = (const unsigned char *)text + length};
    uint32_t all = 0, found = 0;
    if (said->count == 0)
        return NOT_SAID;
    while (next_word(&words)) {
        if (!words.number)
            continue;
        size_t at = slot_for(words.number, SLOTS);
        while (said->slots[at] && said->slots[at] != words.number)
            at = (at + 1) % SLOTS;
        all++;
        found += said->slots[at] != 0;
    }
    return all ? found * 250 / all : TOO_SHORT;
}

static unsigned four_digits(const char *at) {
    unsigned value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = at[i] >= '0' && at[i] <= '9'   ? at[i] - '0'
                    : (at[i] | 32) >= 'a' && (at[i] | 32) <= 'f' ? (at[i] | 32) - 'a' + 10
                                                                 : -1;
        if (digit < 0)
            return ' ';
        value = value * 16 + (unsigned)digit;
    }
    return value;
}

/* Add a JSON string; `from` is behind its opening quotation mark. Tags in it become spaces. */
static void add_json(struct said *said, const char *from) {
    size_t length = strcspn(from, "\""), done = 0;
    while (from[length] && length && from[length - 1] == '\\') /* "\\" at an end is too rare to care */
        length += 1 + strcspn(from + length + 1, "\"");
    char *text = PyMem_RawMalloc(length + 1);
    if (text == NULL)
        return;
    int in_tag = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned sign = (unsigned char)from[i];
        if (sign == '\\' && i + 1 < length) {
            sign = (unsigned char)from[++i];
            if (sign == 'n' || sign == 't' || sign == 'r') {
                sign = ' ';
            } else if (sign == 'u' && i + 4 < length) {
                sign = four_digits(from + i + 1);
                i += 4;
                if (sign >= 0x800 && !in_tag) {
                    text[done++] = (char)(0xe0 | sign >> 12);
                    text[done++] = (char)(0x80 | (sign >> 6 & 0x3f));
                    sign = 0x80 | (sign & 0x3f);
                } else if (sign >= 0x80 && !in_tag) {
                    text[done++] = (char)(0xc0 | sign >> 6);
                    sign = 0x80 | (sign & 0x3f);
                }
            }
        }
        in_tag = sign == '<' ? 1 : sign == '>' ? 0 : in_tag;
        text[done++] = in_tag ? ' ' : (char)sign;
    }
    add_text(said, text, done);
    PyMem_RawFree(text);
}

static int contains(const char *value, const char *word) { return strstr(value, word) != NULL; }

unsigned kind_of(const char *value) {
    unsigned kind = 0;
    if (contains(value, "rticle") || contains(value, "BlogPosting"))
        kind |= SAYS_ARTICLE;
    if (contains(value, "roduct"))
        kind |= SAYS_PRODUCT;
    if (contains(value, "website") || contains(value, "WebSite"))
        kind |= SAYS_SITE;
    if (contains(value, "CollectionPage") || contains(value, "ItemList"))
        kind |= SAYS_LIST;
    if (contains(value, "DiscussionForum") || contains(value, "QAPage") || contains(value, "Question"))
        kind |= SAYS_FORUM;
    if (contains(value, "FAQ"))
        kind |= SAYS_FAQ;
    return kind;
}

/* Return the string that is the value of a key; NULL if the value is no string. */
static const char *string_of(const char *key_end) {
    key_end += strspn(key_end, " \t\r\n");
    if (*key_end++ != ':')
        return NULL;
    key_end += strspn(key_end, " \t\r\n");
    return *key_end == '"' ? key_end + 1 : NULL;
}

static void read_json(struct blocks *page, const char *json) {
    static const struct {
        const char *key;
        int place; /* of the set; -1: the type; -2: an offer */
    } keys[] = {{"\"@type\"", -1}, {"\"offers\"", -2}, {"\"articleBody\"", 0}, {"\"text\"", 0}, {"\"reviewBody\"", 0},
                {"\"description\"", 1}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *at = json;
        for (int j = 0; j < MOST_KEYS && (at = strstr(at, keys[i].key)) != NULL; j++) {
            at += strlen(keys[i].key);
            if (keys[i].place == -2) {
                page->offers++;
                continue;
            }
            const char *value = keys[i].place < 0 ? at : string_of(at);
            if (value == NULL)
                continue;
            if (keys[i].place >= 0) {
                add_json(&page->said[keys[i].place], value);
                continue;
            }
            char type[48] = {0};
            memcpy(type, value, strnlen(value, sizeof type - 1));
            char *comma = strchr(type, ',');
            if (comma != NULL)
                *comma = '\0';
            page->kind |= kind_of(type);
        }
    }
}

/* A product group, the list of a shop, is not one product. */
static int is_product(const char *type) {
    return strcmp(type, "product") == 0 || strcmp(type, "product.item") == 0 || strcmp(type, "og:product") == 0;
}

#define MOST_OFFERS 19 /* for the variants of one product, and a few other products */

void note_end(struct blocks *page) {
    if (page->kind & SAYS_PRODUCT && page->offers && page->offers <= MOST_OFFERS)
        page->kind |= SAYS_ONE_PRODUCT;
}

void note_unseen(struct blocks *page, const xmlNode *node, uint8_t tag) {
    const xmlNode *text = node->children;
    const char *value, *content;
    if (tag == META) {
        if ((content = value_of(node, "content")) == NULL)
            return;
        if ((value = value_of(node, "property")) != NULL && strcmp(value, "og:type") == 0)
            page->kind |= kind_of(content) | (is_product(content) ? SAYS_ONE_PRODUCT : 0);
        else if ((value != NULL && strcmp(value, "og:description") == 0) ||
                 ((value = value_of(node, "name")) != NULL && strcmp(value, "description") == 0))
            add_text(&page->said[1], content, strlen(content));
    } else if (tag == TITLE && page->title_length == 0 && text != NULL && text->content != NULL) {
        value = (const char *)text->content;
        page->title_length = fold(page->title, LONGEST_TITLE, value, strlen(value));
    } else if (tag == SCRIPT && text != NULL && text->content != NULL && page->scripts < MOST_SCRIPTS &&
               (value = value_of(node, "type")) != NULL && contains(value, "ld+json")) {
        page->scripts++;
        read_json(page, (const char *)text->content);
    }
}
