"""Work of the command on its own machine: processes, data folder, sites, consent by browser."""
