"""Pages and final states of a crawl as files: formats, what may be resumed, object stores."""
