"""Tables of many runs: the paper's, and comparisons by a plan."""
