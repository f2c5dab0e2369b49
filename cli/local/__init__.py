"""What the command does on its own machine: processes, data folder, sites, consent by browser."""
