"""The forms in which a platform's firewall rule is written down, one module each; `render` chooses among them."""
