"""`umbilical bootstrap`: the tunnel in an installer's output. One module for each command."""
