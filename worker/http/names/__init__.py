"""What a host name resolves to: name servers, the hosts file, and who may ask how much at once."""
