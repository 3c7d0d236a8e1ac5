"""Lessons: typical faults of clusters that were built by hand, created on purpose as exercises."""
