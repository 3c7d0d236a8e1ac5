"""What is created through the API of a cluster that is being built by hand, in the order of the files' names.

Namespaces come first, then definitions, then roles, then configuration, then what operators take over.
"""
