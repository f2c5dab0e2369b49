"""Commands for users, one module each (``pause`` and similar ones are in ``operate``)."""
