"""What people look at: samples of crawls' counters, and alerts."""
