"""COMMANDS: wires everything, decides nothing. Nobody imports this room."""
