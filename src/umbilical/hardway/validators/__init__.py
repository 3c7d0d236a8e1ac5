"""Other programs' judgement: those that will read the artifacts are run on a copy of them, which is not kept."""
