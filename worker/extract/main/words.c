/* Words that say what an element or a short text is about. */

#include "main.h"

static const struct {
    const char *name, *words;
} classes[CLASS_GROUPS] = {
    {"content", "content contents maincontent pagecontent contentarea"},
    {"article", "article articles post posts entry story news blog blogpost hentry single"},
    {"body", "body text copy prose richtext rte wysiwyg markdown paragraph articlebody postbody "
             "entrycontent articlecontent postcontent storybody"},
    {"main", "main primary center middle"},
    {"navigation", "nav navigation navbar menu submenu breadcrumb breadcrumbs crumb crumbs pagination pager "
                   "paging megamenu dropdown skip topbar"},
    {"header", "header head masthead top banner topnav toolbar logo"},
    {"footer", "footer foot bottom colophon copyright legal disclaimer subfooter"},
    {"side", "side sidebar aside widget widgets rail secondary complementary sidenav left right"},
    {"comments", "comment comments reply replies respond disqus commentlist commentary feedback"},
    {"thread", "thread topic message discussion forum conversation posting question answer answers"},
    {"related", "related recommended recommendation recommendations recommend more similar popular trending "
                "latest recent teaser teasers promo promoted suggest suggested suggestions next prev "
                "previous readmore"},
    {"share", "share sharing social facebook twitter follow likes like addthis sharedaddy socials sharebar"},
    {"advert", "ad ads advert adverts advertisement sponsor sponsored dfp outbrain taboola promotion "
               "advertising commercial"},
    {"form", "form subscribe subscription newsletter signup login register search input email contact "
             "mailchimp optin"},
    {"meta", "meta byline date time published info tags tag category categories cat cats label labels "
             "timestamp postmeta dateline"},
    {"author", "author authors bio avatar profile about writer user username"},
    {"product", "product products price prices cart buy sku shop basket stock variant variants quantity "
                "woocommerce purchase checkout"},
    {"description", "description desc detail details spec specs specification specifications features "
                    "feature summary excerpt intro lead lede abstract overview subtitle dek standfirst"},
    {"card", "card cards grid tile tiles slider carousel swiper slide slick gallery thumb thumbnail"},
    {"list", "list item items listing row results result loop collection archive"},
    {"overlay", "modal popup overlay cookie cookies consent gdpr dialog hidden hide alert notice toast tooltip "
                "banner offcanvas invisible"},
    {"title", "title headline heading name caption hero figcaption credit"},
    {"documentation", "doc docs documentation code highlight api method toc reference manual admonition syntax"},
    {"faq", "faq faqs accordion tab tabs panel collapse section module block testimonial testimonials "
            "review reviews rating ratings cta button btn"},
};

static const struct {
    const char *name, *words;
} texts[TEXT_GROUPS] = {
    {"related", "related similar recommended recommendations popular trending latest also más auch aussi leia "
                "weitere ähnliche verwandte passend relacionadas relacionados relacionado connexes correlati "
                "gerelateerde gerelateerd powiązane zobacz также похожие lea lees mira"},
    {"comments", "comment comments kommentar kommentare commentaires commentaire comentarios comentários "
                 "comentario commenti komentarze reply replies antworten respuestas responder répondre reacties "
                 "комментарии отзывы reviews discussion σχόλια komentáře"},
    {"share", "share teilen compartir compartilhar partager condividi facebook twitter whatsapp pinterest "
              "linkedin tweet udostępnij поделиться follow folgen suivez síguenos instagram youtube telegram delen "
              "sdílet dela"},
    {"subscribe", "newsletter subscribe abonnieren suscríbete suscribirse abonnez inscreva iscriviti signup "
                  "email rss inbox subscribers abonnement prenumerera nieuwsbrief odběr"},
    {"author", "author autor auteur autore by von par por di written posted über about autorin redaktion "
               "editor reporter journalist"},
    {"legal", "copyright rights reserved privacy terms cookies cookie disclaimer impressum datenschutz © "
              "vorbehalten reservados réservés policy"},
    {"account", "login log register account password anmelden registrieren connexion sign signin konto cuenta "
                "inloggen"},
    {"tags", "tags tag category categories kategorie kategorien filed under topics schlagworte etiquetas mots "
             "schlagwörter catégorie tagged labels štítky"},
    {"shop", "cart price buy shipping add basket warenkorb stock checkout quantity sold sale wishlist "
             "delivery size"},
    {"more", "more read mehr weiterlesen lire leer ver continue load show click here view all see weiter suite "
             "siguiente next previous anterior précédent suivant learn"},
    {"date", "january february march april may june july august september october november december jan feb mar "
             "apr jun jul aug sep sept oct nov dec ago hours minutes days januar februar märz mai juni juli "
             "oktober dezember enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre "
             "diciembre janvier février mars avril juin juillet août septembre octobre novembre décembre uhr "
             "monday tuesday wednesday thursday friday saturday sunday updated published"},
    {"media", "photo image video foto picture bild getty images reuters afp credit courtesy watch imagen fotos "
              "source quelle fuente via ap dpa"},
};

const char *const class_group_names[CLASS_GROUPS] = {
    "content", "article", "body", "main", "navigation", "header", "footer", "side", "comments", "thread", "related",
    "share", "advert", "form", "meta", "author", "product", "description", "card", "list", "overlay", "title",
    "documentation", "faq"};
const char *const text_group_names[TEXT_GROUPS] = {
    "related", "comments", "share", "subscribe", "author", "legal", "account", "tags", "shop", "more", "date", "media"};

/* Hashes of words to their groups; open addressing, filled once. */
#define SLOTS 2048
static struct slot {
    uint32_t number, groups;
} class_slots[SLOTS], text_slots[SLOTS];

static void note(struct slot *slots, const char *words, uint32_t group) {
    while (*words) {
        uint32_t number = 2166136261u;
        for (; *words && *words != ' '; words++)
            number = (number ^ (unsigned char)*words) * 16777619u;
        unsigned at = (number ^ number >> 13) % SLOTS;
        while (slots[at].number && slots[at].number != number)
            at = (at + 1) % SLOTS;
        slots[at].number = number;
        slots[at].groups |= group;
        while (*words == ' ')
            words++;
    }
}

static uint32_t look_up(const struct slot *slots, uint32_t number) {
    unsigned at = (number ^ number >> 13) % SLOTS;
    while (slots[at].number && slots[at].number != number)
        at = (at + 1) % SLOTS;
    return slots[at].number ? slots[at].groups : 0;
}

void words_begin(void) {
    for (unsigned i = 0; i < CLASS_GROUPS; i++)
        note(class_slots, classes[i].words, 1u << i);
    for (unsigned i = 0; i < TEXT_GROUPS; i++)
        note(text_slots, texts[i].words, 1u << i);
}

/* A word ends where its letters end, and before a capital after a small letter. */
uint32_t class_groups(const char *value) {
    uint32_t groups = 0, number = 2166136261u;
    int letters = 0, small = 0;
    if (value == NULL)
        return 0;
    for (;; value++) {
        unsigned char one = (unsigned char)*value;
        int is_small = one >= 'a' && one <= 'z', is_capital = one >= 'A' && one <= 'Z';
        if (letters && (!(is_small || is_capital) || (is_capital && small))) {
            groups |= look_up(class_slots, number);
            number = 2166136261u;
            letters = 0;
        }
        if (is_small || is_capital) {
            number = (number ^ (one | 0x20)) * 16777619u;
            letters = 1;
        }
        small = is_small;
        if (!one)
            return groups;
    }
}

/* Return whether a word is in a list; a blank ends each word of the list. */
static int is_one_of(const char *word, size_t length, const char *words) {
    for (; *words; words += strcspn(words, " ") + 1)
        if (strcspn(words, " ") == length && strncmp(word, words, length) == 0)
            return 1;
    return 0;
}

#define LONGEST_WORD 24

/* Return whether one name in `value` has a word such as "comments" or "commentlist", and no word that
 * makes it a count of comments, a link to them, or a form for them. */
int names_comments(const char *value) {
    static const char others[] = "count counts counter number num link links icon icons button btn open opened "
                                 "closed no has off on enabled disabled allowed toggle show view add new form "
                                 "policy bubble field input write post leave load ";
    char word[LONGEST_WORD];
    size_t length = 0;
    int found = 0, other = 0, small = 0;
    for (;; value++) {
        unsigned char one = (unsigned char)*value;
        int is_small = one >= 'a' && one <= 'z', is_capital = one >= 'A' && one <= 'Z';
        if (length && (!(is_small || is_capital) || (is_capital && small))) {
            if (length <= LONGEST_WORD) {
                int comment = length >= 7 && strncmp(word, "comment", 7) == 0;
                found |= comment && !(length >= 9 && strncmp(word + 7, "at", 2) == 0) &&
                         !(length >= 10 && strncmp(word + 7, "ary", 3) == 0);
                found |= length == 6 && strncmp(word, "disqus", 6) == 0;
                other |= is_one_of(word, length, others);
            }
            length = 0;
        }
        if (one <= ' ') {
            if (found && !other)
                return 1;
            found = other = 0;
        }
        if (is_small || is_capital) {
            if (length < LONGEST_WORD)
                word[length] = (char)(one | 0x20);
            length++;
        }
        small = is_small;
        if (!one)
            return 0;
    }
}

uint32_t text_groups(const char *text, size_t length) {
    uint32_t groups = 0, number = 2166136261u;
    int letters = 0;
    for (size_t i = 0; i <= length; i++) {
        unsigned char one = i < length ? (unsigned char)text[i] : 0;
        if (one >= 'A' && one <= 'Z')
            one |= 0x20;
        if ((one >= 'a' && one <= 'z') || one >= 0x80) {
            number = (number ^ one) * 16777619u;
            letters = 1;
        } else if (letters) {
            groups |= look_up(text_slots, number);
            number = 2166136261u;
            letters = 0;
        }
    }
    return groups;
}
