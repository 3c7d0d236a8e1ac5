"""Wire formats: one parser and encoder per format, both directions in one file.

Pure: no sockets, no clock, no randomness, no files. Imports no other package of Umbilical.
"""
