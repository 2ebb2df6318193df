"""run: what a run itself says to the model, in answers to calls and in turns of its own."""
