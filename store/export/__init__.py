"""Exports of a crawl's pages and final states as files: fields, formats, resumable exports."""
