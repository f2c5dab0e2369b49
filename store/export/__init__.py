"""Pages and final states of a crawl as files: what is said of each, formats, resumable exports."""
