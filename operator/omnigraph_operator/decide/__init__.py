"""The decision core: pure functions from what is desired and observed to actions and status."""
