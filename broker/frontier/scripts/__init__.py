"""How the Lua scripts are called, what goes into them, and what comes back."""
