"""Stories that the lab tells, one module each: what is shown, step by step, with the evidence beside it."""
