"""Resolves host names: name servers, the hosts file, and limits on look-ups."""
