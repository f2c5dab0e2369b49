"""Which pages keep their content: their directives may forbid it, and copies are left out."""
