"""Programs with upstream's names, flags, texts and exit statuses; they start without click."""
