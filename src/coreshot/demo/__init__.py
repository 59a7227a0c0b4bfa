"""`coreshot demo` and `coreshot example`: a story of two studies, each number of which is computed when it is told."""
