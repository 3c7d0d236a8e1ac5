"""`umbilical hosted`: commands for hosted control planes. `cli/main.py` maps each command to its module."""
