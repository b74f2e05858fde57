"""The traced model as plain data, free of torch."""
