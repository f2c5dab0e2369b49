"""Public suites of test cases, read by ours and by the best libraries in the same run."""
