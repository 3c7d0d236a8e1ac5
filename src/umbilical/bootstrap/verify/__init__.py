"""Every assertion on a bootstrap config as a check, beside what it judges."""
