"""At rest: the seam, two drivers, and SQL by topic."""
