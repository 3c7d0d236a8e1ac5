"""The output forms of a platform's firewall rule; `render` selects one."""
