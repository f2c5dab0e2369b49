"""The state of authentication, in files and in Redis: secrets, and the results of logins."""
