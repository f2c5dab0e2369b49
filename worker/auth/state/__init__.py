"""The state of authentication: secrets, and what logins leave behind, in files and in Redis."""
