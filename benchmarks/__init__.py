"""What the numbers in the README come from; run from the checkout."""
