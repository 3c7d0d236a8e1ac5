"""The doctor: looks at artifacts, record and machines, and says of what is wrong where it is and what to do."""
