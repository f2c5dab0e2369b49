"""Pages: what each shows and what its forms do."""
