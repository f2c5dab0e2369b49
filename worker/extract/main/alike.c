/* Find elements of one form and sum up what they hold together. Such elements are the posts of a thread or
 * the items of a listing, and the lines in all of them that say who wrote and when. */

#include "main.h"

#define FEWEST_RECORDS 3
#define FEWEST_BLOCKS 2 /* of a record, on average; paragraphs of a text are no records */

static uint32_t place_of(struct alike *alike, uint64_t key) {
    size_t slot = slot_for(key, alike->size);
    while (alike->slots[slot] && alike->sums[alike->slots[slot]].key != key)
        slot = (slot + 1) & (alike->size - 1);
    if (!alike->slots[slot]) {
        alike->slots[slot] = ++alike->count;
        alike->sums[alike->count] = (struct alike_sum){.key = key, .first = UINT32_MAX};
    }
    return alike->slots[slot];
}

static void add_kin(struct alike *alike, const struct blocks *page) {
    for (uint32_t i = 0; i < page->block_count; i++) {
        const struct block *block = &page->blocks[i];
        struct alike_sum *sum = &alike->sums[alike->kin[block->element]];
        sum->blocks++;
        sum->length += block->length;
        sum->linked += block->linked;
        sum->good += block->good ? block->length : 0;
        sum->repeated += block->repeats > 1;
        sum->first = sum->first < i ? sum->first : i;
        sum->last = i + 1;
    }
}

static void add_records(struct alike *alike, const struct blocks *page) {
    for (uint32_t i = 1; i < page->element_count; i++) {
        const struct element *own = &page->elements[i];
        if (own->last == own->first)
            continue;
        struct alike_sum *sum = &alike->sums[alike->group[i]];
        sum->members++;
        sum->blocks += own->last - own->first;
        sum->length += own->length;
        sum->linked += own->linked;
        sum->good += own->good;
        sum->first = sum->first < own->first ? sum->first : own->first;
        sum->last = own->last;
    }
    alike->record[0] = 0;
    for (uint32_t i = 1; i < page->element_count; i++) {
        const struct alike_sum *sum = &alike->sums[alike->group[i]];
        int is_record = sum->members >= FEWEST_RECORDS && sum->blocks >= FEWEST_BLOCKS * sum->members;
        alike->record[i] = is_record ? i : alike->record[page->elements[i].parent];
    }
}

int alike_read(struct alike *alike, const struct blocks *page) {
    size_t most = 2 * (size_t)page->element_count + 2;
    alike->size = 64;
    while (alike->size < 2 * most)
        alike->size *= 2;
    alike->count = 0;
    alike->slots = PyMem_RawCalloc(alike->size, sizeof *alike->slots);
    alike->sums = PyMem_RawMalloc(most * sizeof *alike->sums);
    alike->kin = PyMem_RawMalloc(3 * most / 2 * sizeof *alike->kin);
    if (alike->slots == NULL || alike->sums == NULL || alike->kin == NULL) {
        alike_free(alike);
        return 0;
    }
    alike->group = alike->kin + page->element_count;
    alike->record = alike->group + page->element_count;
    for (uint32_t i = 0; i < page->element_count; i++) {
        const struct element *own = &page->elements[i];
        alike->kin[i] = place_of(alike, 1ull << 63 | own->form);
        alike->group[i] = place_of(alike, ((uint64_t)own->parent + 1) << 32 | own->form);
    }
    add_kin(alike, page);
    add_records(alike, page);
    return 1;
}

void alike_free(struct alike *alike) {
    PyMem_RawFree(alike->slots);
    PyMem_RawFree(alike->sums);
    PyMem_RawFree(alike->kin);
}
