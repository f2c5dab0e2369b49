"""A hook in twenty lines: store the prices that a page shows.

./greencrawl crawl https://shop.example/ --hook examples.prices
./greencrawl export --format jsonl      # each line's "fields" holds {"prices": [...]}
"""

import re

from greencrawl.schema.records import Fetched, Page

PRICE = re.compile(r"(?:€|\$|£|EUR|USD|GBP)\s?\d+(?:[.,]\d\d)?|\d+(?:[.,]\d\d)?\s?(?:€|EUR)")


def on_page(page: Page, fetched: Fetched) -> dict[str, object] | None:
    """Own fields of the page, or None where it shows no price."""
    prices = list(dict.fromkeys(match.group() for match in PRICE.finditer(page.text)))
    if not prices:
        return None
    return {"prices": prices, "count": len(prices), "status": fetched.status}
