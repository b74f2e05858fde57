"""What is known about operators by name; plug-ins may add to it."""
