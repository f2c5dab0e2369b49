"""Other crawlers on the same sites, each as a job of its own, to compare with ours."""
