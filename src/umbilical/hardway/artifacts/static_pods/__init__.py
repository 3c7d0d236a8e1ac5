"""Static pods of every node: one module for each program, with the table that its command line is made from."""
