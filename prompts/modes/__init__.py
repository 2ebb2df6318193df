"""modes: what each mode is for, for the model."""
