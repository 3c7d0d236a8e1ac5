"""Edits of the installer's bootstrap script: where they go, what they insert, and how they are taken back."""
