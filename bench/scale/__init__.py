"""The effects of more processes, hosts and nodes, and the model that predicts them."""
