"""What authentication keeps: secrets, and what logins leave behind, in files and in Redis."""
