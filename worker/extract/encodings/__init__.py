"""How the encoding of a page is found: what it declares, or what its bytes are."""
