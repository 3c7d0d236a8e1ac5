"""`umbilical stage`: build a cluster stage by stage. `cli/main.py` lists which module has which command."""
