"""The checks of a bootstrap config, each next to the rules it uses."""
