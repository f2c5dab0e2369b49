"""Commands for who crawls, a module each (``pause`` and its like are in ``operate``)."""
