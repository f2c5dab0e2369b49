"""What follows from what pages say about their use: whose content is not kept."""
