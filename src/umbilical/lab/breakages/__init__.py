"""Breakages that the lab can make and mend, and by which message and code of ours each is recognised."""
