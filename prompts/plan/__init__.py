"""plan: what plan mode says to the model."""
