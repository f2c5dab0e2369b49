"""What the command does on its own machine: processes, data folder, sites, a consent by browser."""
