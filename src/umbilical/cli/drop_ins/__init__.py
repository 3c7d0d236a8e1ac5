"""Programs under upstream's names, with upstream's flags, words and exit statuses; they start without click."""
