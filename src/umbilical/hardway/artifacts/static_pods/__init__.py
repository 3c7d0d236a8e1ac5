"""Static pods of every node: one module for each program, with the table of its flags."""
