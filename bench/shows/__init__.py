"""One promise each, shown by a run: politeness, a kill, an idle system, a site as WARC."""
