"""How a host name is resolved: name servers, the hosts file, and who may ask how much at once."""
