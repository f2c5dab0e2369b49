"""The parts of the command on its own machine: processes, data folder, sites, a consent by
browser."""
