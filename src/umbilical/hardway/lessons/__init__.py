"""Lessons: faults that somebody met while building clusters by hand, put in on purpose, to be found."""
