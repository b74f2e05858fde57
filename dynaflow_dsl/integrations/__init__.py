"""Ways into other systems: what they hand over goes through the same pipeline."""
