"""One module per stage, numbered as the stages are."""
