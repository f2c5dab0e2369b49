"""HTTP on the wire: names and addresses, connections, requests, answers and their codings."""
