"""Independent judges of generated modules: they know the model, never the plan."""
